"""Run files never change an answer: random sequences of what happens to a table, its index and an assigner,
with loads that end at any step, losses of power, changed bytes, deleted runs and folders of former versions.

The operations (`run_world.py`, `table_world.py`) are those of an exact model, which found the rules that run
files keep to (docs/adr/0014-run-files.md); here they happen to the cache itself.
`make index-campaign` runs for minutes.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.unit.index_assigner.run_world import RunWorld
from tidemark.hudi_format.hfile import reader as hfile_reader
from tidemark.hudi_format.hfile import writer as hfile_writer
from tidemark.index_assigner.index import change_tier, copies, key_ranges, run_tier, waited_loads
from tidemark.index_assigner.runs import loading

CAMPAIGN_S = float(os.environ.get("TIDEMARK_INDEX_CAMPAIGN_S", "0"))
WORLDS, TIGHT_WORLDS = 15, 5


def play(
    folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch, reached: Counter[str], steps: int, tight: bool
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(hfile_writer, "_block_bytes", lambda _: 1 + seed % 2 * 100)
        patched.setattr(hfile_reader, "_RUN_BYTES", 1)
        patched.setattr(change_tier, "_WRITTEN_MIN", seed % 3)
        patched.setattr(change_tier, "_ITEMS_AT_ONCE", 1 + seed % 2)
        patched.setattr(loading, "_ENTRIES_PER_BLOCK", 2)
        patched.setattr(key_ranges, "_BLOCKS_PER_RANGE", 1 + seed % 2)
        patched.setattr(key_ranges, "_MORE_KEYS", 0)
        patched.setattr(key_ranges, "_TIMES_AS_MUCH", 1)
        patched.setattr(run_tier, "_KEYS_PER_PLAN", 0)
        patched.setattr(copies, "_GAIN_MIN", 0)
        # In every third world look-ups wait for the load of what they would read most of.
        patched.setattr(waited_loads, "_ENTRIES_MIN", 0 if seed % 3 == 1 else 50_000)
        world = RunWorld(folder, seed, patched, reached, tight)
        for _ in range(steps):
            world.step()
            if world.draw.random() < 0.5:
                world.check()
        world.check()
        world.owner.close()


def test_random_sequences_with_run_files_are_answered_as_the_model_says(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: Counter[str] = Counter()
    for seed in range(WORLDS):
        play(folder / str(seed), seed, monkeypatch, reached, 25, tight=seed >= WORLDS - TIGHT_WORLDS)
    wanted = {
        *("run serves", "given back", "damaged", "flipped", "evicted", "killed while loading"),
        *("taken over", "changes lost", "former version beside a change run"),
        *("part serves", "part loaded", "ranges evicted", "killed while evicting", "shards dropped"),
        *("asked before it is promoted", "compacted late", "restored", "lane came back", "warmed"),
        *("counted entries loaded again", "counted entries over a change run"),
        *("flipped while open", "flipped while open, ranges missing"),
        *("run serves an older time", "unseen commit shows", "undone before anybody noticed"),
        "killed while warming",
    }
    assert {name for name in wanted if reached[name] > 0} == wanted, reached


@pytest.mark.skipif(not CAMPAIGN_S, reason="make index-campaign")
def test_campaign(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`play` with a seed that failed shows it again."""
    ends, seed, failed = time.monotonic() + CAMPAIGN_S, 1_000, dict[int, str]()
    while time.monotonic() < ends:
        try:
            play(folder / str(seed), seed, monkeypatch, Counter(), 40, seed % 3 == 0)
        except Exception as error:
            failed[seed] = repr(error)
        seed += 1
    assert not failed, f"{len(failed)} of {seed - 1_000} worlds: {failed}"
