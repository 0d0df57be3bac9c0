"""What the commit draws stays when only pages change, and changes with everything else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.commit_seed import content_of


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """With one commit of a page, a folder of pages, and a folder of code."""
    _git(tmp_path, "init", "-q")
    return _committed(tmp_path, "README.md", "docs/page.md", "libs/code.py")


def _committed(root: Path, *names: str) -> Path:
    for name in names:
        file = root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{file.read_text() if file.exists() else ''}more\n")
    _git(root, "add", "-A")
    _git(root, "-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "-q", "-m", "m")
    return root


def _git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


@pytest.mark.parametrize("name", ["README.md", "docs/page.md", "docs/images/new.svg"])
def test_a_commit_of_pages_draws_the_same(repository: Path, name: str) -> None:
    (repository / "docs" / "images").mkdir()
    before = content_of(repository)
    assert before != ""
    assert content_of(_committed(repository, name)) == before


@pytest.mark.parametrize("name", ["libs/code.py", "Makefile", "tests/page.md"])
def test_a_commit_of_anything_else_draws_anew(repository: Path, name: str) -> None:
    before = content_of(repository)
    assert content_of(_committed(repository, name)) != before


def test_a_folder_without_a_repository_draws_by_nothing(tmp_path: Path) -> None:
    assert content_of(tmp_path) == ""
