"""One place says the version, `pyproject.toml`; the command, the page, images and manifests agree with it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tidemark.cli.main import main
from tidemark.page.answers import page_files
from tidemark.stream_runtime.http_messages import Request
from tidemark.stream_runtime.platform.version import installed_version

ROOT = Path(__file__).resolve().parents[2]
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
# Manifests are read by tools that know no pyproject.toml, so they repeat it.
NAMED = {
    "docker-compose.yml": r"TIDEMARK_VERSION:-([^}]+)\}",
    "deploy/kubernetes": r"(?:newTag: |tidemark/spark:)([0-9][\w.]*)",
    "docs/deploy-compose.md": r"(?:tidemark`, `|tidemark/service:)([0-9][\w.]*)",
}


def test_the_installed_version_is_that_of_the_project() -> None:
    assert installed_version() == VERSION


def test_the_command_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tidemark {VERSION}\n"


def test_the_page_says_it() -> None:
    answer = page_files()["/"](Request("/", {}, {}))
    assert f"Tidemark {VERSION}." in answer.body.decode()


def test_the_changelog_has_it() -> None:
    released = re.findall(r"^## \[([0-9][^\]]*)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert released[0] == VERSION


@pytest.mark.parametrize("place", sorted(NAMED))
def test_images_are_named_by_it(place: str) -> None:
    files = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*.yaml"))
    found = [each for file in files for each in re.findall(NAMED[place], file.read_text(encoding="utf-8"))]
    assert found != []
    assert set(found) == {VERSION}


def test_images_are_built_with_it() -> None:
    script = (ROOT / "deploy" / "compose.sh").read_text(encoding="utf-8")
    (reads,) = re.findall(r"^VERSION=\"\$\{TIDEMARK_VERSION:-\$\((sed .*)\)\}\"$", script, re.M)
    said = subprocess.run(["sh", "-c", reads], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == f"{VERSION}\n"
    assert '--label "org.opencontainers.image.version=$VERSION"' in script
