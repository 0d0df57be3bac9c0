"""Completion as real shells do it: each is given the script that `tidemark completion` prints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.cli.main import main

# What bash does at TAB: fills the COMP variables, calls the function that `complete -F` named.
BASH = r"""
source <(tidemark completion bash)
call=$(complete -p tidemark | sed -E 's/.*-F ([^ ]+) .*/\1/')
for line in "$@"; do
    COMP_LINE="$line"; COMP_POINT=${#line}; COMP_TYPE=9; COMPREPLY=()
    read -ra COMP_WORDS <<<"$line"
    COMP_CWORD=$((${#COMP_WORDS[@]}-1))
    $call tidemark "${COMP_WORDS[-1]}" "${COMP_WORDS[-2]}"
    echo "${COMPREPLY[*]}"
done
"""
FISH = "source (tidemark completion fish | psub); complete -C $argv[1]"
ZSH = "autoload -Uz compinit; compinit -D; source <(tidemark completion zsh); print -- $_comps[tidemark]"


def ask(shell: str, script: str, folder: Path, *lines: str) -> list[str]:
    """What the shell offers for each line; the installed command is on its PATH."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = {
        "bash": ["--norc", "-c", script, "bash"],
        "fish": ["-N", "-c", script],
        "zsh": ["-f", "-c", script],
    }
    done = subprocess.run(
        [program, *options[shell], *lines],
        cwd=folder,
        env={**os.environ, "PATH": path, "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [each.split("\t")[0].strip() for each in done.stdout.splitlines() if each.strip()]


def test_bash_completes_commands_options_values_and_files(tmp_path: Path):
    (tmp_path / "orders.yaml").touch()
    expected = {
        "tidemark sta": "status",
        "tidemark dead-letter re": "replay",
        "tidemark verify --f": "--full",
        "tidemark demo --type c": "copy_on_write",
        "tidemark status -c ord": "orders.yaml",
    }
    assert ask("bash", BASH, tmp_path, *expected) == list(expected.values())


def test_fish_completes_commands(tmp_path: Path):
    assert ask("fish", FISH, tmp_path, "tidemark sta") == ["status"]


def test_zsh_takes_the_script(tmp_path: Path):
    assert ask("zsh", ZSH, tmp_path) == ["_python_argcomplete"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_names_the_command(shell: str, capsys: pytest.CaptureFixture[str]):
    assert main(["completion", shell]) == 0
    assert "tidemark" in capsys.readouterr().out
