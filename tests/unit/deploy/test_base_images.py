"""Base images come from where this machine's apt gets its packages: what `mmdebstrap` is given."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "deploy" / "base-images.sh"
NONE_OF_OURS = (
    "# deb https://mirror.example/debian bookworm main\n"
    "deb https://mirror.example/debian trixie main\n"
    "deb https://mirror.example/docker bookworm stable\n"
    "deb cdrom:[Debian 12]/ bookworm main\n"
    "deb-src https://mirror.example/debian bookworm main\n"
)
OURS = (
    "deb [arch=amd64 signed-by=/usr/share/keyrings/d.gpg] https://mirror.example/debian bookworm main contrib"
)
# Keeps what it is given; its own folder and that of apt are arguments of the test.
MMDEBSTRAP = """#!/bin/sh
for argument in "$@"; do
    case "$argument" in
        */machine.*) cp "$argument" "$SEEN" ;;
        --setup-hook=*) mkdir -p "$SEEN/root/etc/apt/apt.conf.d"; sh -c "${argument#*=}" sh "$SEEN/root" ;;
        *.tar) : >"$argument" ;;
    esac
done
"""
DOCKER = '#!/bin/sh\n[ "$1 $2" != "image inspect" ] || [ "$3" = --format ]\n'

pytestmark = pytest.mark.skipif(shutil.which("apt-config") is None, reason="apt is Debian's")


def given(folder, configuration="", **sources):
    """Runs the script on an apt of its own with these files of sources; what mmdebstrap got, by name."""
    (folder / "bin").mkdir()
    for name, text in (("mmdebstrap", MMDEBSTRAP), ("docker", DOCKER)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    parts = folder / "apt" / "parts"
    parts.mkdir(parents=True)
    for name, text in sources.items():
        (parts / name.replace("_", ".")).write_text(text)
    (folder / "apt.conf").write_text(
        f'Dir::Etc "{folder}/apt";\nDir::Etc::sourcelist "none";\nDir::Etc::sourceparts "parts";\n'
        f"{configuration}"
    )
    seen = folder / "seen"
    seen.mkdir()
    environment = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "APT_CONFIG": str(folder / "apt.conf"),
        "SEEN": str(seen),
    }
    subprocess.run(
        ["sh", str(SCRIPT), "python"], env=environment, check=True, capture_output=True, timeout=300
    )
    return {path.name: path.read_text() for path in seen.rglob("*") if path.is_file()}


def test_one_line_sources_of_the_suite_are_given(tmp_path):
    assert given(tmp_path, a_list=f"{NONE_OF_OURS}{OURS} # ours\n")["machine.list"].strip() == OURS


def test_deb822_sources_of_the_suite_are_given_whole(tmp_path):
    ours = (
        "Types: deb deb-src\nURIs: https://mirror.example/debian\nSuites: bookworm\n bookworm-updates\n"
        "Components: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
    )
    others = (
        ours.replace("Suites: bookworm", "Suites: trixie"),
        f"Enabled: no\n{ours}",
        ours.replace("main", "stable"),
    )
    got = given(
        tmp_path, a_sources="\n".join((others[0], ours, *others[1:])), b_sources=f"# a comment\n{ours}"
    )
    assert got["machine.sources"] == f"{ours}\n{ours}\n"
    assert "machine.list" not in got


def test_without_sources_of_the_suite_itself_it_is_mmdebstraps_default(tmp_path):
    got = given(tmp_path, a_list=f"{NONE_OF_OURS}deb https://mirror.example/debian bookworm-updates main\n")
    assert set(got) == {"00fetching"}


def test_apts_proxy_holds_while_the_image_is_made(tmp_path):
    proxy = 'Acquire::http::Proxy "http://proxy.example:3142";'
    assert proxy in given(tmp_path, configuration=f'{proxy}\nAPT::Get::Assume-Yes "true";\n')["00fetching"]
    assert "Assume-Yes" not in (tmp_path / "seen/root/etc/apt/apt.conf.d/00fetching").read_text()
