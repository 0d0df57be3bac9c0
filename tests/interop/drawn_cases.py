"""Which cases with the mark `every_case` a run does: all of them in `make services-interop`, which takes an
hour, and a few in `make interop`, others with each commit.

Every process of a run draws the same ones, by the commit that is checked out or by `TIDEMARK_SEED`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice, zip_longest
from random import Random
from typing import Any, Final

import pytest

from tests import commit_seed

MARK: Final = "every_case"
DRAWN: Final = 3


def all_are_run() -> bool:
    """Whether this is `make services-interop`."""
    return os.environ.get("TIDEMARK_SERVICES") == "all"


def seed_of_run() -> int:
    """What draws the cases of this run."""
    return commit_seed.seed_of_run("TIDEMARK_SEED", "cases")


def drawn(names: Iterable[str], seed: int, count: int = DRAWN) -> set[str]:
    """So many of these node ids, of as many modules as there are: some modules have many cases."""
    random, of_module = Random(seed), dict[str, list[str]]()
    known = sorted(names)
    for name in random.sample(known, len(known)):
        of_module.setdefault(name.partition("::")[0], []).append(name)
    turns = [of_module[module] for module in random.sample(sorted(of_module), len(of_module))]
    in_turn = (name for turn in zip_longest(*turns) for name in turn if name is not None)
    return set(islice(in_turn, count))


def skip_all_but_the_drawn(items: Iterable[pytest.Item]) -> None:
    """Of what a run has selected: whoever names three cases or fewer gets them."""
    if all_are_run():
        return
    cases = [item for item in items if item.get_closest_marker(MARK) is not None]
    if len(cases) <= DRAWN:
        return
    seed = seed_of_run()
    kept = drawn((item.nodeid for item in cases), seed)
    reason = f"not drawn by TIDEMARK_SEED={seed}: `make services-interop` runs every case"
    for item in cases:
        if item.nodeid not in kept:
            item.add_marker(pytest.mark.skip(reason=reason))


def told(reports: Iterable[Any]) -> Iterator[str]:
    """Which cases were drawn, by what, for the end of a run. `reports`: of tests that ran."""
    ran = sorted({each.nodeid for each in reports if MARK in getattr(each, "keywords", ())})
    if ran and not all_are_run():
        again = f"TIDEMARK_SEED={seed_of_run()} draws them again"
        yield f"cases of `make services-interop` that were drawn ({again}):"
        yield from (f"  {name}" for name in ran)
