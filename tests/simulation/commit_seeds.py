"""Seeds that change with the commit: each has worlds that none before had, and everyone has the same.

A run takes twenty of them, so that five commits have a hundred. `TIDEMARK_COMMIT_WORLDS=300 make simulation`
takes so many.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.commit_seed import content_of, number_of
from tests.simulation.reached_states import CHUNK

OF_THE_COMMIT: Final = int(os.environ.get("TIDEMARK_COMMIT_WORLDS", "20"))
OF_THE_COMMIT_MAX: Final = 10_000
"""Whatever their number, those of a commit begin at the same seed."""
DRAWN_FROM: Final = 2_000
"""Seeds below are for the fixed ones."""


def first_seed_of(commit: str) -> int:
    """Where a commit's seeds begin: far from those of other commits, the same in every process."""
    return DRAWN_FROM + number_of(commit) % (2**31 - DRAWN_FROM - OF_THE_COMMIT_MAX)


def commit_chunks(root: Path) -> list[Sequence[int]]:
    """All seeds of the commit that is checked out, `CHUNK` a test."""
    start = first_seed_of(content_of(root))
    return [range(first, first + CHUNK) for first in range(start, start + OF_THE_COMMIT, CHUNK)]
