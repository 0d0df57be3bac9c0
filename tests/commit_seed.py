"""A number that changes with the commit that is checked out, but for commits that only change pages. What is
drawn by it is something else in each commit, and the same for everybody and in every process of a run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[1]


def seed_of_run(variable: str, what: str) -> int:
    """The seed that the environment variable names, which a test that failed shows; else one that the commit
    and `what` (the test's name) draw. So the same commit passes or fails everywhere, and each commit tries
    something else.
    """
    return int(os.environ.get(variable) or seed_of_commit(what))


def seed_of_commit(what: str) -> int:
    """The seed that the commit which is checked out draws for `what`."""
    return number_of(f"{content_of(_ROOT)} {what}")


def content_of(root: Path) -> str:
    """What the commit that is checked out contains, pages aside: git's names of its top folders and files.
    "" for a tree without a repository.

    A figure or a sentence that comes after the last run of all tests draws nothing anew.
    """
    asked = subprocess.run(["git", "ls-tree", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return "\n".join(line for line in asked.stdout.splitlines() if not _is_page(line.partition("\t")[2]))


def _is_page(name: str) -> bool:
    return name == "docs" or name.endswith(".md")


def number_of(commit: str) -> int:
    """32 bits."""
    return int.from_bytes(hashlib.sha256(commit.encode()).digest()[:4], "big")
