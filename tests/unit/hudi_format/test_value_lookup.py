"""Which rows have a value: through the secondary index of its column, page by page."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tests.unit.commit_coordinator.offline.test_offline_secondary_index import notes
from tests.unit.hudi_format.metadata_tables import change_behind_loading
from tests.unit.table_files import existing_table, new_table, write_config
from tidemark.commit_coordinator.offline.secondary_index import create_index
from tidemark.config import load_config
from tidemark.hudi_format import secondary_index_scan, secondary_pages, value_lookup
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import BlockRun, HFileOptions, HFileReader, KeyValues, write_hfile
from tidemark.hudi_format.hfile.block_search import BlockSearch
from tidemark.hudi_format.hfile.layout import DATA_BLOCK_BYTES_MAX
from tidemark.hudi_format.indexed_values import ValueFormError, index_text
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import (
    composite_keys,
    entry_values,
    prefixes,
)
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.secondary_pages import entry_page
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.value_lookup import (
    NotIndexedError,
    PageTokenError,
    ValuePage,
    look_up_values,
)
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds

BY_CITY = SecondaryIndexPartition("secondary_index_city")


class Index:
    """One file group of an index: a base file, and log files one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.storage = folder, LocalStorage(folder)
        self.logs: list[str] = []
        self.base: str | None = None

    def compacted(self, keys: pa.StringArray, block_bytes: int = DATA_BLOCK_BYTES_MAX) -> None:
        self.base = "base.hfile"
        options = HFileOptions(data_block_bytes=block_bytes)
        content = write_hfile(keys, entry_values(len(keys)), metadata_record_schema(), options)
        (self.folder / self.base).write_bytes(content)

    def commit(
        self, puts: list[tuple[str | None, str]], deletes: Sequence[tuple[str | None, str]] = ()
    ) -> None:
        self.logs.append(f"log.{len(self.logs)}")
        changes = SecondaryChanges(entries(puts), entries(deletes))
        _, data = BY_CITY.log_file(changes, f"{len(self.logs):017d}", ShardId(0))
        (self.folder / self.logs[-1]).write_bytes(data)

    def pages(self, values: Sequence[str | None], limit: int) -> Iterator[list[str]]:
        wanted = prefixes(pa.array(values, pa.string())).to_pylist()
        file_slice = FileSlice("", "f", self.base, "0", tuple(self.logs))
        last: str | None = ""
        while last is not None:
            page = entry_page(self.storage, "", file_slice, lambda _: True, wanted, last, limit)
            yield page.keys.to_pylist()
            last = page.last


class JavaOrdered:
    """A reader of a file as Hudi's writer sorts it, by UTF-16 units, with three entries a block."""

    schema, name = "", "base.hfile"

    def __init__(self, keys: list[str]) -> None:
        ordered = sorted(keys, key=lambda key: key.encode("utf-16-be"))
        self._blocks = [ordered[at : at + 3] for at in range(0, len(ordered), 3)]

    def candidate_blocks(self, keys: pa.StringArray) -> npt.NDArray[np.int64]:
        return BlockSearch([block[0].encode() for block in self._blocks]).candidates(keys)

    def first_key(self, number: int) -> bytes:
        return self._blocks[number][0].encode()

    def runs(self, numbers: range) -> Iterator[BlockRun]:
        for number in numbers:
            keys = pa.array(self._blocks[number])
            yield BlockRun([number], KeyValues(keys, entry_values(len(keys))), [len(keys)])


def entries(pairs: Sequence[tuple[str | None, str]]) -> pa.StringArray:
    texts, keys = zip(*pairs, strict=True) if pairs else ((), ())
    return composite_keys(pa.array(texts, pa.string()), pa.array(keys, pa.string()))


def in_order(pairs: set[tuple[str | None, str]], values: Sequence[str | None]) -> list[str]:
    found = [pair for pair in pairs if pair[0] in values]
    return sorted(entries(found).to_pylist(), key=str.encode)


VALUES = ["a", "a$\\", "", None, "\0", "\ue000", "\U0001f600"]
KEYS = [f"{letter}{number}" for letter in ("k", "$", "\ue000", "\U0001f600", "\uffff") for number in range(9)]


@pytest.mark.parametrize("like_java", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_pages_of_each_value_are_its_living_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, like_java: bool
) -> None:
    monkeypatch.setattr(secondary_pages, "_ENTRIES_MIN", 12)
    monkeypatch.setattr(secondary_pages, "_BLOCKS_AT_ONCE", 1)
    chance = random.Random(seed)
    every = [(value, key) for value in VALUES for key in KEYS]
    index, living = Index(tmp_path), set(chance.sample(every, 200))
    stored = entries(list(living)).to_pylist()
    index.compacted(pa.array(sorted(stored, key=str.encode)), block_bytes=100)
    opened = HFileReader.open
    monkeypatch.setattr(
        HFileReader, "open", lambda *file: JavaOrdered(stored) if like_java else opened(*file)
    )
    for _ in range(5):
        deletes = set(chance.sample(sorted(living, key=str), 20)) | set(chance.sample(every, 5))
        puts = set(chance.sample(every, 20)) - deletes
        index.commit(list(puts), list(deletes))
        living = living - deletes | puts
    some = [chance.sample(VALUES, count) for count in range(2, len(VALUES) + 1)]
    for values in [*([value] for value in VALUES), *some]:
        pages = list(index.pages(values, limit=9))
        assert all(len(page) <= 9 for page in pages)
        assert [key for page in pages for key in page] == in_order(living, values)


def test_a_page_reads_no_further_than_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secondary_pages, "_ENTRIES_MIN", 1_000)
    index, taken = Index(tmp_path), list[int]()
    index.compacted(pa.array([f"rome$key-of-a-row-{n:07d}" for n in range(200_000)]))
    add = secondary_pages._FirstEntries.add

    def counted(first: Any, keys: pa.StringArray, is_live: npt.NDArray[np.bool_], source: str) -> None:
        taken.append(len(keys))
        add(first, keys, is_live, source)

    monkeypatch.setattr(secondary_pages._FirstEntries, "add", counted)
    assert len(next(index.pages(["rome"], 10))) == 10
    assert sum(taken) < 60_000
    taken.clear()
    assert list(index.pages(["rom"], 10)) == [[]]
    assert sum(taken) < 60_000


def test_of_some_values_the_blocks_that_may_have_them_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, taken = Index(tmp_path), list[int]()
    pairs = [(f"city {number:05d}", f"key-of-a-row-{row}") for number in range(40_000) for row in range(5)]
    index.compacted(entries(pairs))
    add = secondary_pages._FirstEntries.add

    def counted(first: Any, keys: pa.StringArray, is_live: npt.NDArray[np.bool_], source: str) -> None:
        taken.append(len(keys))
        add(first, keys, is_live, source)

    monkeypatch.setattr(secondary_pages._FirstEntries, "add", counted)
    values = [f"city {number:05d}" for number in (0, 77, 78, 20_000, 39_999)]
    assert list(index.pages([*values, "city", "town"], 100)) == [in_order(set(pairs), values)]
    assert 25 <= sum(taken) < 20_000


class ArrowPeak:
    """The most that Arrow's pool held while the block ran, sampled; and what tracemalloc saw."""

    def __enter__(self) -> ArrowPeak:
        self._done, self.arrow = threading.Event(), 0
        self._before = pa.total_allocated_bytes()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        tracemalloc.start()
        return self

    def _sample(self) -> None:
        while not self._done.wait(0.0005):
            self.arrow = max(self.arrow, pa.total_allocated_bytes() - self._before)

    def __exit__(self, *_: object) -> None:
        self.python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self._done.set()
        self._thread.join()


def test_a_value_of_many_rows_costs_the_memory_of_a_page(tmp_path: Path) -> None:
    value, count, index = None, 1_000_000, Index(tmp_path)
    keys = pa.array([f"key-of-a-row-{n:09d}" for n in range(count)])
    stored = composite_keys(pa.array([value], pa.string()).take(pa.array(np.zeros(count, np.int64))), keys)
    index.compacted(stored)
    index.commit([(value, "key-of-a-row-5")], [(value, "key-of-a-row-000200000")])
    found = 0
    whole = stored.nbytes
    del stored, keys
    with ArrowPeak() as peak:
        for number, page in enumerate(index.pages([value], 10_000)):
            found += len(page)
            if number == 3:
                break
    assert found == 40_000
    assert 2 * (peak.arrow + peak.python) < whole


# ----------------------------------------------------------- of a table


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """Of the table in `tmp_path / "table"`."""
    writer = new_table(tmp_path / "table")
    writer.commit(notes("2026-01-01", 1, k1="a$b", k2=None, k3="x"))
    file = write_config(tmp_path)
    create_index(load_config(file), SystemClock(), SystemIds(), "by_note", "note", lambda text: None)
    return LocalStorage(tmp_path / "table")


def rows(storage: LocalStorage, value: str | None, limit: int = 10) -> ValuePage:
    return look_up_values(storage, "note", [value], "", limit)


def test_keys_come_with_the_places_of_their_rows(storage: LocalStorage) -> None:
    page = rows(storage, "a$b")
    assert (page.index, page.column, list(page.keys), page.next_token) == ("by_note", "note", ["k1"], "")
    [place] = page.places
    assert place is not None
    assert place.partition_path == "2026-01-01"
    assert page.as_of
    assert list(rows(storage, None).keys) == ["k2"]
    assert list(rows(storage, "null").keys) == []


def test_an_entry_without_a_row_has_no_place(storage: LocalStorage, tmp_path: Path) -> None:
    existing_table(tmp_path / "table").commit(notes("2026-01-02", 2, k4="x"), deletes=[("k3", None)])
    assert (list(rows(storage, "x").keys), list(rows(storage, "x").places)) == (["k3"], [None])


def test_a_column_without_an_index_is_told_which_have_one(storage: LocalStorage, tmp_path: Path) -> None:
    with pytest.raises(NotIndexedError, match=r"column day has no secondary index; .*: note \(by_note\)"):
        look_up_values(storage, "day", ["2026-01-01"], "", 10)
    new_table(tmp_path / "bare")
    with pytest.raises(NotIndexedError, match="the table has none"):
        look_up_values(LocalStorage(tmp_path / "bare"), "note", ["x"], "", 10)


def test_a_token_of_another_question_is_refused(storage: LocalStorage, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    existing_table(tmp_path / "table").commit(notes("2026-01-02", 2, k4="x", k5="x"))
    create_index(load_config(file), SystemClock(), SystemIds(), "by_note", "note", lambda text: None)
    page = look_up_values(storage, "note", ["x"], "", 2)
    assert list(page.keys) == ["k3", "k4"]
    rest = look_up_values(storage, "note", ["x"], page.next_token, 2)
    assert (list(rest.keys), rest.next_token) == (["k5"], "")
    for token, value in [(page.next_token, "a$b"), ("?", "x"), ("w6k=x", "x")]:
        with pytest.raises(PageTokenError, match="not from an answer to this question"):
            look_up_values(storage, "note", [value], token, 2)


def test_an_index_that_is_made_anew_meanwhile_is_asked_as_it_is_then(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of now were judged by the timelines of before: the answer was to drop the index."""
    change_behind_loading(monkeypatch, 2 * [lambda: remade(tmp_path, monkeypatch, 3)])
    assert rows(storage, "x").keys == ["k3"]


@pytest.fixture
def every(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str | None, str]]:
    """Gives the table rows of 40 values and of none, and its index ten file groups: their (value, key)."""
    several = {f"n{number:03d}": None if number % 41 == 40 else f"v{number % 41}" for number in range(200)}
    existing_table(tmp_path / "table").commit(notes("2026-01-02", 2, **several))
    remade(tmp_path, monkeypatch, 10)
    return [("a$b", "k1"), (None, "k2"), ("x", "k3"), *((value, key) for key, value in several.items())]


def remade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: int) -> None:
    monkeypatch.setattr(secondary_index_scan, "GROUPS_MIN", groups)
    file = tmp_path / "orders.yaml"
    create_index(load_config(file), SystemClock(), SystemIds(), "by_note", "note", lambda text: None)


def pages_of(storage: LocalStorage, values: Sequence[str | None], limit: int) -> Iterator[ValuePage]:
    token: str | None = None
    while token is None or token:
        page = look_up_values(storage, "note", values, token or "", limit)
        yield page
        token = page.next_token


@pytest.mark.parametrize("values_of_a_page", [1, 4, 2_000])
@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_each_row_of_some_values_comes_once_with_its_value(
    storage: LocalStorage,
    every: list[tuple[str | None, str]],
    monkeypatch: pytest.MonkeyPatch,
    limit: int,
    values_of_a_page: int,
) -> None:
    monkeypatch.setattr(value_lookup, "_VALUES_OF_A_PAGE", values_of_a_page)
    asked = ["v3", "v17", "nowhere", "v4", "a$b", "v3", *(f"v{number}" for number in range(20, 40)), None]
    pages = list(pages_of(storage, asked, limit))
    assert all(len(page.keys) <= limit for page in pages)
    assert all(len(set(page.values)) <= values_of_a_page for page in pages)
    found = [(asked[value], key) for page in pages for value, key in zip(page.values, page.keys, strict=True)]
    assert sorted(found, key=repr) == sorted([row for row in every if row[0] in asked], key=repr)
    # Equal values: the first one. Rows of a value follow each other.
    assert 5 not in [value for page in pages for value in page.values]
    order = [value for value, _ in found]
    changes = sum(before != behind for before, behind in pairwise(order))
    assert changes == len(set(order)) - 1
    assert all(place is not None for page in pages for place in page.places)


def test_a_page_of_long_keys_ends_with_its_bytes(
    storage: LocalStorage, every: list[tuple[str | None, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over all file groups of the index, of which each has some of the values."""
    monkeypatch.setattr(value_lookup, "BYTES_MAX", 100)
    asked = [f"v{number}" for number in range(40)]
    pages = list(pages_of(storage, asked, 1_000))
    assert max(sum(map(len, page.keys)) for page in pages) <= 100
    found = sorted(key for page in pages for key in page.keys)
    assert found == sorted(key for value, key in every if value in asked)


def test_an_index_with_another_number_of_groups_ends_the_pages_of_several_values(
    storage: LocalStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    every: list[tuple[str | None, str]],
) -> None:
    asked = [f"v{number}" for number in range(40)]
    several, one = next(pages_of(storage, asked, 2)), next(pages_of(storage, asked[:1], 2))
    remade(tmp_path, monkeypatch, 3)
    with pytest.raises(PageTokenError, match="made anew .* ask from the first page"):
        look_up_values(storage, "note", asked, several.next_token, 2)
    assert look_up_values(storage, "note", asked[:1], one.next_token, 2).keys


# ------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("kind", "written", "text"),
    [
        (pa.string(), " 007", " 007"),
        (pa.string(), "", ""),
        (pa.int32(), "007", "7"),
        (pa.int32(), "-2147483648", "-2147483648"),
        (pa.int64(), "9223372036854775807", "9223372036854775807"),
        (pa.date32(), "2024-01-03", "19725"),
        (pa.date32(), "1969-12-31", "-1"),
        (pa.timestamp("us", "UTC"), "2024-01-01T00:49:41.123456Z", "1704070181123456"),
        (pa.timestamp("us", "UTC"), "2024-01-01T01:49:41.123456+01:00", "1704070181123456"),
        (pa.timestamp("us", "UTC"), "1969-12-31 23:59:59.999999", "-1"),
    ],
)
def test_a_value_is_written_as_its_type_is(kind: pa.DataType, written: str, text: str) -> None:
    assert index_text("c", kind, written) == text


@pytest.mark.parametrize(
    ("kind", "written", "form"),
    [
        (pa.int32(), "2147483648", "32 bits"),
        (pa.int32(), "", "32 bits"),
        (pa.int64(), "9223372036854775808", "64 bits"),
        (pa.int64(), "1_0", "64 bits"),
        (pa.int64(), "null", "64 bits"),
        (pa.date32(), "03.01.2024", "2024-01-03"),
        (pa.date32(), "2024-01-03T00:00:00", "2024-01-03"),
        (pa.timestamp("us", "UTC"), "2024-01-01T00:49:41.1234567Z", "to the microsecond"),
        (pa.timestamp("us", "UTC"), "1704070181123456", "to the microsecond"),
    ],
)
def test_a_text_that_is_no_value_is_refused(kind: pa.DataType, written: str, form: str) -> None:
    with pytest.raises(ValueFormError, match=f"no value of the column c, which is .*{form}"):
        index_text("c", kind, written)
