"""The checks between the rows and the base files of a rebuilt index: each can fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tidemark.hudi_format.columnar import concat_rows
from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.hfile import HFileWriter
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries
from tidemark.hudi_format.table_services.rebuilding.documents import (
    RowsTally,
    ShardFile,
    encode,
    whole_build,
)
from tidemark.hudi_format.table_services.rebuilding.shard_files import ShardWriter, entries_digest

SHARDS = 4
KEYS = [f"k{number:02d}" for number in range(40)]


class Grown:
    """A file that is written nowhere."""

    def write(self, data: object) -> None:
        return None

    def finish(self, note: bytes = b"") -> Ticket:
        return Ticket("p", 1)

    def discard(self) -> None:
        return None


def of_rows(keys: Sequence[str], group: str = "f", shard: int | None = None) -> Entries:
    """Entries of rows in one file group; ``shard``: a wrong one, before all keys."""
    numbers = record_index_shard(list(keys), SHARDS).tolist() if shard is None else [shard] * len(keys)
    before = pa.array([number.to_bytes(2, "big") for number in numbers], pa.binary())
    names = concat_rows(before, pa.array(list(keys)).cast(pa.binary())).cast(pa.binary())
    count = len(keys)
    values = encode_values(
        np.zeros(count, np.int32), [RecordLocation("p", group)], np.full(count, 1_700_000_000_000)
    )
    return Entries(names, values)


def written(folder: Path, *incoming: Entries, shards: Sequence[int] = range(SHARDS)) -> list[ShardFile]:
    bounds = MergeBounds(32 << 20, folder)
    return ShardWriter(SHARDS, "20260101000000000", lambda _: Grown(), bounds).write(shards, incoming)


def test_files_have_just_the_entries_that_came(tmp_path: Path) -> None:
    files = written(tmp_path, of_rows(KEYS[:25]), of_rows(KEYS[25:], "g"))
    assert [file.shard for file in files] == list(range(SHARDS))
    came = [entries_digest(of_rows(KEYS[:25])), entries_digest(of_rows(KEYS[25:], "g"))]
    assert sum(file.entries for file in files) == len(KEYS)
    assert sum(file.digest for file in files) % 2**64 == sum(digest for _, digest in came) % 2**64


def test_a_key_with_rows_in_two_file_groups_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTableError, match="2 keys have rows in two file groups"):
        written(tmp_path, of_rows(KEYS), of_rows(KEYS[3:5], "g"))


def test_entries_of_a_shard_that_is_not_the_tasks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"entries of shard \d came to the task of shards \[0, 2\]"):
        written(tmp_path, of_rows(KEYS), shards=[0, 2])


def test_keys_that_do_not_belong_into_their_shard_are_found_when_the_file_is_read_back(
    tmp_path: Path,
) -> None:
    with pytest.raises(CorruptFileError, match="out of order or place"):
        written(tmp_path, of_rows(KEYS, shard=1))


def _without_the_first(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    return keys[1:], values[1:]


def _with_another_place(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    return keys, of_rows(["x"] * len(keys), "g").values


@pytest.mark.parametrize(
    ("change", "said"),
    [(_without_the_first, "new base files hold 36 entries"), (_with_another_place, "their sums differ")],
)
def test_a_file_that_has_other_entries_than_were_written_is_no_index(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pa.Array, pa.Array], tuple[pa.Array, pa.Array]],
    said: str,
) -> None:
    append = HFileWriter.append
    monkeypatch.setattr(HFileWriter, "append", lambda file, *columns: append(file, *change(*columns)))
    with pytest.raises(CorruptFileError, match=said):
        written(tmp_path, of_rows(KEYS))


FILES = [ShardFile(shard, 10, shard + 5, 1, Ticket("p", 1)) for shard in range(3)]
TALLIES = [RowsTally(29, 17), RowsTally(1, 1)]


def test_a_build_is_whole_when_files_and_rows_have_the_same_sums() -> None:
    documents = [encode(each) for each in (FILES[2], TALLIES[0], FILES[0], TALLIES[1], FILES[1])]
    assert whole_build(documents, 3, 2) == FILES
    largest = msgspec.structs.replace(FILES[0], digest=2**64 - 1)
    assert whole_build([encode(largest), encode(RowsTally(10, 2**64 - 1))], 1, 1) == [largest]


@pytest.mark.parametrize(
    ("reports", "said"),
    [
        ([*FILES[:2], *TALLIES], "2 base files for 3 shards"),
        ([*FILES, FILES[1], *TALLIES], "4 base files for 3 shards"),
        ([FILES[0], FILES[0], FILES[2], *TALLIES], "3 base files for 3 shards"),
        ([*FILES, TALLIES[0]], "1 of 2 tasks"),
        ([*FILES, *TALLIES, TALLIES[1]], "3 of 2 tasks"),
        ([*FILES, TALLIES[0], RowsTally(2, 1)], "hold 30 entries, of the rows came 31"),
        ([*FILES, TALLIES[0], RowsTally(1, 2)], "their sums differ"),
    ],
)
def test_a_build_that_lacks_something_or_has_it_twice_is_none(
    reports: Sequence[ShardFile | RowsTally], said: str
) -> None:
    with pytest.raises(CorruptFileError, match=said):
        whole_build(map(encode, reports), 3, 2)


@pytest.mark.parametrize("document", [b"", b"{", b"\xff", b'{"type": "Other"}', b'{"entries": 1}'])
def test_a_report_that_cannot_be_read_is_an_error(document: bytes) -> None:
    with pytest.raises(CorruptFileError, match="not readable"):
        whole_build([document], 0, 0)
