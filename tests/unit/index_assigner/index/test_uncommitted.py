"""The uncommitted tier of one lane against a model of lists and dicts, and what it gives back."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tidemark.index_assigner.index import uncommitted
from tidemark.index_assigner.index.ports import StagedChanges
from tidemark.index_assigner.index.uncommitted import LaneEntries

ROOT = Path(__file__).resolve().parents[4]
KEYS = [b"", b"a", b"a\0", "ä".encode(), b"b" * 300, *(b"k%d" % number for number in range(60))]


def changes(locations: list[int]) -> StagedChanges:
    """Present keys at these locations, whose ordering value is the location too."""
    count = len(locations)
    return StagedChanges(
        keys=pa.array([""] * count),
        shards=np.zeros(count, np.int32),
        location=np.array(locations, np.int32),
        ordering=np.array(locations, np.int64),
        has_ordering=np.ones(count, np.bool_),
        exact=np.ones(count, np.bool_),
        expires_ms=np.zeros(count, np.int64),
        deleted_from=np.full(count, -1, np.int32),
    )


@dataclass
class Model:
    """(key, location) in the order of staging, with the transaction that counted it; None: not yet."""

    entries: list[tuple[bytes, int, int | None]] = field(default_factory=list)

    def stage(self, keys: list[bytes], locations: list[int]) -> None:
        self.entries += [(key, location, None) for key, location in zip(keys, locations, strict=True)]

    def counted(self, offset: int) -> None:
        self.entries = [(k, at, offset if counted is None else counted) for k, at, counted in self.entries]

    def drop_staged(self) -> None:
        self.entries = [entry for entry in self.entries if entry[2] is not None]

    def newest(self, through: int | None = None) -> dict[bytes, int]:
        """Key -> location of what transactions up to ``through`` counted; None: of everything."""
        counts = {
            key: location
            for key, location, counted in self.entries
            if through is None or (counted is not None and counted <= through)
        }
        return counts

    def discard(self, through: int) -> None:
        self.entries = [entry for entry in self.entries if entry[2] is None or entry[2] > through]


def found(entries: LaneEntries, keys: list[bytes]) -> dict[bytes, int]:
    slots = entries.find(keys)
    held = np.flatnonzero(slots >= 0)
    locations = entries.rows(slots[held])["location"].tolist()
    return dict(zip((keys[position] for position in held.tolist()), locations, strict=True))


def allocated() -> int:
    """Bytes of Python's objects, NumPy's arrays and Arrow's buffers."""
    traced: int = tracemalloc.get_traced_memory()[0]
    pooled: int = pa.total_allocated_bytes()
    return traced + pooled


def promoted(entries: LaneEntries, through: int) -> dict[bytes, int]:
    end, _ = entries.through(through)
    slots = entries.newest_below(end)
    assert (np.diff(slots) > 0).all()
    parts = list(entries.parts(slots, 7, 1_000))
    places = {
        key: place for keys, rows in parts for key, place in zip(keys, rows["location"].tolist(), strict=True)
    }
    assert len(places) == len(slots)
    return places


@pytest.mark.parametrize("hashes", ["as they are", "of 3 values", "all equal"])
@pytest.mark.parametrize("seed", range(2))
def test_answers_are_those_of_a_dict(hashes: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when many keys share a hash: then the keys themselves decide."""
    if hashes != "as they are":
        modulus = 3 if hashes == "of 3 values" else 1
        monkeypatch.setattr(
            uncommitted, "_hashes", lambda keys: np.array([len(k) % modulus for k in keys], np.int64)
        )
    drawn, entries, model = random.Random(seed), LaneEntries(), Model()
    offset, done, dropped, discarded = 0, 0, 0, 0
    for step in range(150):
        what = drawn.random()
        if what < 0.6:
            keys = drawn.sample(KEYS, drawn.randint(0, len(KEYS)))
            locations = [drawn.randrange(1_000) for _ in keys]
            entries.stage(keys, changes(locations))
            model.stage(keys, locations)
        elif what < 0.8:
            offset += 1
            entries.counted(offset, None)
            model.counted(offset)
        elif what < 0.9:
            dropped += len(entries)
            entries.drop_staged()
            model.drop_staged()
            dropped -= len(entries)
        elif offset > done:
            done = drawn.randint(done + 1, offset)
            assert promoted(entries, done) == model.newest(done), step
            discarded += len(entries)
            entries.discard_through(done)
            model.discard(done)
            discarded -= len(entries)
        assert len(entries) == len(model.entries), step
        asked = drawn.sample(KEYS, len(KEYS))
        assert found(entries, asked) == model.newest(), step
    assert dropped
    assert discarded


def test_growing_takes_no_second_copy_of_what_is_held() -> None:
    """200 000 entries: rows, and the table of slots, which is made anew when it doubles."""
    keys = [b"order-%012d" % number for number in range(200_000)]
    batch = changes([1] * 10_000)
    tracemalloc.start()
    try:
        entries = LaneEntries()
        for first in range(0, 200_000, 10_000):
            entries.stage(keys[first : first + 10_000], batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.3 * (entries._rows.nbytes + entries._newest.nbytes)


def test_what_is_discarded_is_given_back() -> None:
    """300 000 entries of three transactions: after the second is promoted, the memory of the third alone is
    held. NumPy's arrays are counted by tracemalloc, Arrow's by its pool.
    """
    tracemalloc.start()
    try:
        before = allocated()
        entries = LaneEntries()
        for transaction in range(3):
            for batch in range(10):
                first = transaction * 100_000 + batch * 10_000
                keys = [b"order-%012d" % number for number in range(first, first + 10_000)]
                entries.stage(keys, changes([1] * 10_000))
            entries.counted(transaction, None)
        del keys

        def held() -> int:
            return allocated() - before

        assert 0.8 * held() < entries.nbytes < 1.2 * held()
        per_entry = held() / 300_000
        assert per_entry < 140, "a quarter more rows than entries, at most"
        entries.discard_through(1)
        assert len(entries) == 100_000
        assert held() < 100_000 * 130
        entries.discard_through(2)
        assert held() < 100_000
        assert entries.nbytes < 10_000
    finally:
        tracemalloc.stop()


RESIDENT = """
import re
import numpy as np
import pyarrow as pa
from pathlib import Path
from tests.unit.index_assigner.index.test_uncommitted import changes
from tidemark.index_assigner.index.uncommitted import LaneEntries
from tidemark.stream_runtime.allocator import give_memory_back, use_system_allocator

def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) >> 10

use_system_allocator()
entries, batch = LaneEntries(), changes([1] * 10_000)
entries.stage([b"warm"], changes([1]))
before = resident()
for first in range(0, 500_000, 10_000):
    entries.stage([b"order-%012d" % number for number in range(first, first + 10_000)], batch)
entries.counted(0, None)
full = resident() - before
end, _ = entries.through(0)
for keys, rows in entries.parts(entries.newest_below(end), 1 << 14, 1 << 21):
    pass
entries.discard_through(0)
give_memory_back()
print(full, resident() - before)
"""


def test_the_process_gets_smaller_when_entries_are_promoted() -> None:
    """Anonymous resident memory in MiB, of a process of its own; the second figure was 80 with one object a
    key.
    """
    done = subprocess.run(
        [sys.executable, "-c", RESIDENT], cwd=ROOT, check=True, capture_output=True, text=True, timeout=120
    )
    full, left = map(int, done.stdout.split())
    assert full > 40
    assert left < 30
