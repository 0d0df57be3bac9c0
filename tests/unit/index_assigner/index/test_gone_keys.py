"""However many keys a shard's changes delete, so many of them are in memory at a time as the limit allows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.index_assigner.index_world import DataTable
from tidemark.hudi_format.metadata_table import RecordIndexEntries
from tidemark.hudi_format.model import RecordLocation
from tidemark.index_assigner.index.gone_keys import gone_keys
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.runs.images import tags_of

LIMITS = IndexLimits(memory_bytes=1 << 20, disk_bytes=1 << 30)
PLACES = [RecordLocation("p", "11111111-1111-1111-1111-111111111111-0")]


def entries(changes: dict[str, bool]) -> RecordIndexEntries:
    """``changes``: key -> whether it lives."""
    ids = np.array([0 if lives else -1 for lives in changes.values()], np.int32)
    keys = pa.array(list(changes), pa.string())
    return RecordIndexEntries(keys, ids, PLACES, np.zeros(len(keys), np.int64))


@pytest.mark.parametrize("seed", range(8))
def test_a_key_is_gone_when_its_last_change_is_a_delete_whatever_the_limit(seed: int) -> None:
    random = np.random.default_rng(seed)
    last: dict[str, bool] = {}
    parts = []
    for _ in range(int(random.integers(0, 8))):
        some = random.permutation(200)[: int(random.integers(0, 120))]
        part = {f"key-{number}-é": bool(random.integers(0, 3) == 0) for number in some.tolist()}
        last.update(part)
        parts.append(entries(part))
    wanted = sorted(key for key, lives in last.items() if not lives)
    for bytes_max in (200, 1_000, 1 << 20):
        found = list(gone_keys(lambda: iter(parts), bytes_max))
        assert sorted(key for keys in found for key in keys.to_pylist()) == wanted
        for keys in found:
            assert keys.nbytes <= bytes_max or len(set(tags_of(keys).tolist())) == 1


def test_where_not_even_one_key_fits_they_come_one_by_one() -> None:
    found = list(gone_keys(lambda: iter([entries(dict.fromkeys("abc", False))]), 0))
    assert sorted(keys.to_pylist() for keys in found) == [["a"], ["b"], ["c"]]


def test_changes_are_read_about_as_often_as_their_deletes_exceed_the_limit() -> None:
    reads = []

    def changes() -> Iterator[RecordIndexEntries]:
        reads.append(1)
        for first in range(0, 10_000, 1_000):
            yield entries({f"order-{number:012d}": False for number in range(first, first + 1_000)})

    held = [keys.nbytes for keys in gone_keys(changes, 50_000)]
    assert max(held) <= 50_000
    # 10 000 keys of 18 bytes and an offset of 4 for each are more than four times the limit.
    assert 5 <= len(reads) <= 16


def test_a_shard_is_caught_up_to_more_deletes_than_fit_with_an_ordering_value_for_each(
    assigners, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 000 deletes of another writer with values, of which a hundred keys are there again, in one shard."""
    table = DataTable(shards=1)
    keys = [f"order-{number:012d}" for number in range(3_000)]
    table.commit_rows({key: (1 + number % 3, 1) for number, key in enumerate(keys)})
    assigners(table, limits=LIMITS).open(table.known()).close()
    for first in range(0, 3_000, 500):
        table.commit_rows({}, dict.fromkeys(keys[first : first + 500], 50 + first))
    table.commit_rows(dict.fromkeys(keys[:100], (2, 9000)))

    asked: list[int] = []
    get_many = RocksTier.get_many

    def noted(rocks: RocksTier, names: list[bytes]) -> list[bytes | None]:
        asked.append(sum(map(len, names)))
        return get_many(rocks, names)

    monkeypatch.setattr(RocksTier, "get_many", noted)
    two = assigners(table, limits=LIMITS).open(table.known())
    assert max(asked) <= LIMITS.caught_up_deletes
    found = two.ask(keys)
    for number, key in enumerate(keys):
        group, wanted = (2, None) if number < 100 else (None, 50 + number // 500 * 500)
        assert (found[key].group, found[key].ordering) == (group, wanted), key
        assert found[key].deleted_from == (None if number < 100 else 1 + number % 3)
