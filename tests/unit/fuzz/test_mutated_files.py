"""Mutated files of every kind that we read, from fixed seeds: typed errors that name the file, no silent
miscount.

`make fuzz` does the same for as long as one likes.
"""

from __future__ import annotations

import resource

import pytest

from tests.fuzz.run import campaign, read_bytes, summary
from tests.fuzz.target import Target
from tests.fuzz.targets import targets

SEEDS = range(120)
GROWTH_KIB_MAX = 1 << 20


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_a_mutated_file_is_read_right_or_refused_by_name(target: Target) -> None:
    whole = read_bytes(target, target.content)
    assert whole.violation is None
    assert whole.kind.startswith("read"), whole
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcomes = list(campaign((target,), SEEDS))
    wrong = [f"seed {each.seed}: {each.violation}" for each in outcomes if each.violation is not None]
    assert not wrong, "\n".join([f"{target.name}: {len(wrong)} of {len(outcomes)}", *wrong[:5]])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < GROWTH_KIB_MAX, f"{grown} KiB more for files of at most {len(target.content)} bytes"
    # A campaign in which nothing is refused would damage nothing that anybody reads.
    assert any(not each.kind.startswith("read") for each in outcomes) or not target.counted, summary(outcomes)


def test_every_name_is_used_once() -> None:
    names = [each.name for each in targets()]
    assert len(set(names)) == len(names)
