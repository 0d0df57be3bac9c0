"""What docs/adding.md names is there: each file, and each name, in the file that is named beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding.md"
NOT_OURS = {"index.json"}
"""Files of a Hudi table."""
QUOTED = re.compile(r"`([^`]+)`")
FILE = re.compile(r"[\w.-]+(/[\w.-]+)*\.(py|md|proto|yml|json|toml|txt)")
NAME = re.compile(r"_?[A-Z]\w+|\w+_\w+")
NAME_IN_FILE = re.compile(r"`(\w+)` in `([\w./]+\.py)`")


@pytest.fixture(scope="module")
def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def ends_with(tracked: list[str], named: str) -> list[str]:
    """Files whose path is the named one, or ends with it."""
    return [path for path in tracked if f"/{path}".endswith(f"/{named}")]


def test_each_file_that_a_recipe_names_is_there(tracked: list[str]) -> None:
    named = {word for word in QUOTED.findall(PAGE.read_text("utf-8")) if FILE.fullmatch(word)}
    assert len(named) > 80
    assert sorted(word for word in named - NOT_OURS if not ends_with(tracked, word)) == []


def test_each_folder_that_a_recipe_names_is_there(tracked: list[str]) -> None:
    folders = {str(parent) for path in tracked for parent in PurePosixPath(path).parents}
    words = QUOTED.findall(PAGE.read_text("utf-8"))
    named = {word for word in words if re.fullmatch(r"[\w-]+(/[\w-]+)+", word)}
    assert named
    assert sorted(word for word in named if not ends_with(sorted(folders), word)) == []


def test_each_name_that_a_recipe_names_is_in_the_code(tracked: list[str]) -> None:
    texts = [(ROOT / path).read_text("utf-8") for path in tracked if path.endswith((".py", ".proto"))]
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    named = {word for word in QUOTED.findall(PAGE.read_text("utf-8")) if NAME.fullmatch(word)}
    assert len(named) > 30
    assert sorted(named - words) == []


def test_a_name_that_is_said_to_be_in_a_file_is_in_it(tracked: list[str]) -> None:
    pairs = NAME_IN_FILE.findall(PAGE.read_text("utf-8"))
    assert len(pairs) > 10
    wrong = [
        (name, file)
        for name, file in pairs
        if not any(
            re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8")) for path in ends_with(tracked, file)
        )
    ]
    assert wrong == []
