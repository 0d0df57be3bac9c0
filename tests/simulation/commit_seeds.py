"""Seeds that change with the commit: each has worlds that none before had, and everyone has the same.

A run takes a hundred of them, which take a minute of CPU time. `TIDEMARK_COMMIT_WORLDS=300 make simulation`
takes so many.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.simulation.reached_states import CHUNK

OF_THE_COMMIT: Final = int(os.environ.get("TIDEMARK_COMMIT_WORLDS", "100"))
OF_THE_COMMIT_MAX: Final = 10_000
"""Whatever their number, those of a commit begin at the same seed."""
DRAWN_FROM: Final = 1_000
"""Seeds below are for the fixed ones."""


def commit_of(root: Path) -> str:
    """The commit that is checked out; "" for a tree without a repository."""
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()


def first_seed_of(commit: str) -> int:
    """Where a commit's seeds begin: far from those of other commits, the same in every process."""
    digest = hashlib.sha256(commit.encode()).digest()
    return DRAWN_FROM + int.from_bytes(digest[:4], "big") % (2**31 - DRAWN_FROM - OF_THE_COMMIT_MAX)


def commit_chunks(root: Path) -> list[Sequence[int]]:
    """All seeds of the commit that is checked out, `CHUNK` a test."""
    start = first_seed_of(commit_of(root))
    return [range(first, first + CHUNK) for first in range(start, start + OF_THE_COMMIT, CHUNK)]
