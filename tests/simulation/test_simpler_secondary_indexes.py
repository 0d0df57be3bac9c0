"""Secondary indexes of simpler designs, each planted into the product. Each has other entries than the rows
behind one of the epochs below, and is found first behind the one that is named.

Entries and rows are read here without the product (`kept_secondary`, hudi-rs). What only several writers
show is in `planted/secondary_bugs.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.kept_secondary import changes, live, switch_on
from tests.simulation.planted.secondary_bugs import known_values_changed
from tests.simulation.rewriting_engine import RewritingEngine
from tests.simulation.scripted_epochs import GROUP_A, GROUP_B, first_epoch, row, second_epoch
from tests.simulation.scripted_tagger import SCHEMA, TABLE, Tagged
from tests.simulation.test_index_made_beside_epochs import Life, Nth, entries, with_values
from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.table import DATA_TIMELINE, Reader
from tidemark.commit_coordinator.commit import commit_effects
from tidemark.commit_coordinator.offline import index_command
from tidemark.epoch_protocol.batches import KEY, OP, DataOp
from tidemark.hudi_format.file_group.base_file import RECORD_KEY
from tidemark.hudi_format.file_group.value_changes import (
    RowsChanged,
    SliceMerge,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryChanges
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableType
from tidemark.stream_writer import secondary_task
from tidemark.stream_writer.data_task import DataPartitionWriter
from tidemark.stream_writer.secondary_task import SecondaryEntries

Patch = pytest.MonkeyPatch
COLUMN, NULL = "v", "\0"
INSERT, UPDATE, DELETE = DataOp.INSERT, DataOp.UPDATE, DataOp.DELETE
EPOCHS: Mapping[str, Sequence[Tagged]] = {
    "an insert": [(row("k", 10, 0), INSERT, GROUP_A)],
    "an update that loses": [(row("k", 9, 1), UPDATE, GROUP_A)],
    "a delete that loses": [(row("k", 9, 0), DELETE, GROUP_A)],
    "two updates": [(row("k", 11, 1), UPDATE, GROUP_A), (row("k", 12, 2), UPDATE, GROUP_A)],
    "a value that comes back": [(row("k", 13, 3), UPDATE, GROUP_A), (row("k", 14, 2), UPDATE, GROUP_A)],
    "a move with its value": [(row("k", 15, 2), DELETE, GROUP_A), (row("k", 15, 2, "d2"), INSERT, GROUP_B)],
    "a row without a value": [({**row("k", 16, 0, "d2"), COLUMN: None}, UPDATE, GROUP_B)],
}


def first_wrong(folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> str | None:
    """The first epoch behind which the entries are not those of the rows."""
    path = CommitPath(folder, table_type, ordered=True)
    switch_on(path.storage, 2, COLUMN)
    for name, rows in EPOCHS.items():
        path.tag(rows)
        path.run_until_idle()
        values = {key: each[COLUMN] for key, each in path.rows().items()}
        if live(path.storage) != {
            f"{NULL if value is None else value}${key}" for key, value in values.items()
        }:
            return name
    return None


def entries_of_what_was_tagged(patch: Patch) -> None:
    """Counterexample 1: whoever tags takes an update for the winner. A row that loses against the stored one
    takes the stored row's entry away.
    """
    real = SliceMerge.rows_logged

    def rows_logged(self: SliceMerge, at: Any, upserts: pa.Table | None, *more: Any) -> RowsChanged:
        found = real(self, at, upserts, *more)
        names = found.after.schema
        return (
            found if upserts is None else RowsChanged(found.before, upserts.select(names.names).cast(names))
        )

    patch.setattr(SliceMerge, "rows_logged", rows_logged)


def each_update_against_the_row_before_the_epoch(patch: Patch) -> None:
    """Counterexample 2: the value of an update that another one of its epoch follows stays for ever."""
    with_steps(patch, lambda before, values: [(before, value) for value in values])


def deletes_behind_the_puts_of_each_step(patch: Patch) -> None:
    """Counterexample 3: an HFile block with the puts, then a block with the deletes. A value that goes and
    comes back is in both.
    """
    with_steps(patch, lambda before, values: list(zip([before, *values], values, strict=False)))
    deletes_win(patch)


def each_data_file_on_its_own(patch: Patch) -> None:
    """Counterexample 4: the file that a row leaves deletes the entry that the other file puts."""
    deletes_win(patch)


def text_of_another_type(patch: Patch) -> None:
    """Counterexample 6: Hudi's readers look up `5`, and the entry says `5.00`."""

    def texts(column: pa.Array) -> pa.Array:
        return column.cast(pa.decimal128(21, 2)).cast(pa.string())

    patch.setattr(secondary_task, "value_texts", texts)


def nulls_left_out(patch: Patch) -> None:
    """Counterexample 7: a row without a value has no entry."""
    patch.setattr(secondary_task, "values_changed", known_values_changed)


def with_steps(patch: Patch, steps_of: Callable[[Any, list[Any]], list[tuple[Any, Any]]]) -> None:
    """Of a key with several updates in an epoch the data task adds the entries of each step, too. `steps_of`:
    the values before and behind each, of the value before the epoch and those of the updates.
    """
    real_write, real_add = DataPartitionWriter.write, SecondaryEntries.add
    tagged: dict[str, list[Any]] = {}

    def write(self: DataPartitionWriter, batches: Sequence[Any]) -> Any:
        tagged.clear()
        for batch in (each.batch for each in batches):
            columns = (batch.column(batch.schema.get_field_index(name)) for name in (KEY, OP, COLUMN))
            for key, op, value in zip(*(column.to_pylist() for column in columns), strict=True):
                if op != DELETE:
                    tagged.setdefault(key, []).append(value)
        return real_write(self, batches)

    def add(self: SecondaryEntries, changed: RowsChanged) -> None:
        real_add(self, changed)
        pairs = changed.before.select([RECORD_KEY, COLUMN])
        for key, before in zip(*(column.to_pylist() for column in pairs.columns), strict=True):
            values = tagged.get(key, [])
            for step in steps_of(before, values) if len(values) > 1 else []:
                rows = (pa.table([[key], [value]], schema=pairs.schema) for value in step)
                real_add(self, RowsChanged(*rows))

    patch.setattr(DataPartitionWriter, "write", write)
    patch.setattr(SecondaryEntries, "add", add)


def deletes_win(patch: Patch) -> None:
    """What is deleted and put in an epoch is deleted."""

    def reduced(parts: Sequence[pa.Table]) -> SecondaryChanges:
        entries = pa.concat_tables(parts).combine_chunks()
        keys, is_put = entries.column("key").combine_chunks(), entries.column("is_put").combine_chunks()
        deletes = keys.filter(pc.invert(is_put)).unique()
        puts = keys.filter(is_put).unique()
        return SecondaryChanges(puts.filter(pc.invert(pc.is_in(puts, value_set=deletes))), deletes)

    patch.setattr(secondary_task, "reduced", reduced)


BUGS: Mapping[Callable[[Patch], None], str] = {
    entries_of_what_was_tagged: "an update that loses",
    each_update_against_the_row_before_the_epoch: "two updates",
    deletes_behind_the_puts_of_each_step: "a value that comes back",
    each_data_file_on_its_own: "a move with its value",
    text_of_another_type: "an insert",
    nulls_left_out: "a row without a value",
}


@pytest.mark.parametrize("table_type", list(TableType))
def test_all_epochs_leave_the_entries_of_the_rows(tmp_path: Path, table_type: TableType) -> None:
    assert first_wrong(tmp_path, table_type) is None


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_simpler_design_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Callable[[Patch], None]
) -> None:
    bug(monkeypatch)
    assert first_wrong(tmp_path) == BUGS[bug]


@pytest.mark.parametrize("compares", [True, False])
def test_an_index_that_appears_behind_the_plan_has_the_epoch_only_if_the_decision_compares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compares: bool
) -> None:
    """The counterexample of admission: it was built from the slices of before."""
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    first_epoch(path)
    path.step_coordinator()
    assert path.write_open_attempt()
    switch_on(path.storage, 2, COLUMN, at=InstantGenerator(path.clock).next())
    if not compares:
        monkeypatch.setattr(commit_effects, "refuse_other_indexes", lambda *_, **__: None)
    path.run_until_idle()
    assert set(path.rows()) == {"a", "b", "c"}
    assert live(path.storage) == ({"1$a", "1$b", "1$c"} if compares else set())


@pytest.mark.parametrize("reads_as_of_plan", [True, False])
def test_a_second_run_of_a_task_has_the_same_entries_only_if_it_reads_as_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_as_of_plan: bool
) -> None:
    """Counterexample 5: another engine commits in between, and a log file's name stands for two contents."""
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    switch_on(path.storage, 2, COLUMN)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    view, tasks = path.open_attempt(), path.run_open_attempt()
    instant = str(view.planned.instant)
    path.outcomes_of(view, tasks)
    first = changes(path.storage, instant)
    assert ("delete", "1$a") in first
    for info in path.storage.walk(""):
        if f"_{instant}.log." in info.name:
            path.storage.delete(info.path)  # else the second run finds the files of the first
    engine = RewritingEngine(path.storage, path.clock, path.action)
    engine.rewrite(SCHEMA, lambda rows: with_values(rows, 100))
    if not reads_as_of_plan:
        reads_the_newest_slices(monkeypatch)
    path.outcomes_of(view, tasks)
    assert (changes(path.storage, instant) == first) is reads_as_of_plan


def reads_the_newest_slices(patch: Patch) -> None:
    """What a task compares with is what is newest when it runs."""
    real = DataPartitionWriter._slices

    def slices(self: DataPartitionWriter, groups: Any) -> Any:
        planned, self._task = self._task, msgspec.structs.replace(self._task, as_of="9" * 17)
        try:
            return real(self, groups)
        finally:
            self._task = planned

    patch.setattr(DataPartitionWriter, "_slices", slices)


@pytest.mark.parametrize("refuses", [True, False])
def test_a_column_that_gets_a_type_with_other_texts_has_its_entries_only_if_that_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """Counterexample 9: the user makes doubles of the longs. Hudi's readers look up `1.0` from then on, and
    the entry of a row that nobody writes again says `1`.
    """
    if not refuses:
        monkeypatch.setattr(SecondaryLayout, "check_schema", lambda *_: None)
        monkeypatch.setattr(secondary_task, "value_texts", texts_of_doubles)
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    switch_on(path.storage, 2, COLUMN)
    first_epoch(path)
    path.run_until_idle()
    assert live(path.storage) == {"1$a", "1$b", "1$c"}
    with_another_type(path, pa.float64())
    second_epoch(path)
    for _ in range(8):
        path.step()
    assert path.coordinator is not None
    halted = path.coordinator.seen.halted or ""
    assert ("whose type double can have none" in halted) is refuses
    assert ("3.0$e" in live(path.storage)) is not refuses
    assert (live(path.storage) == wanted_entries(path)) is refuses


def test_a_column_that_becomes_text_keeps_its_entries(tmp_path: Path) -> None:
    """The text of a number stays what it was."""
    path = CommitPath(tmp_path, TableType.MERGE_ON_READ, ordered=True)
    switch_on(path.storage, 2, COLUMN)
    first_epoch(path)
    path.run_until_idle()
    with_another_type(path, pa.string())
    path.tag([({**row("a", 2, 0), COLUMN: "x"}, DataOp.UPDATE, GROUP_A)])
    path.run_until_idle()
    assert live(path.storage) == wanted_entries(path) == {"x$a", "1$b", "1$c"}


def with_another_type(path: CommitPath, kind: pa.DataType) -> None:
    """The user gives the indexed column this type, and the services start anew."""
    of = SCHEMA.arrow.get_field_index(COLUMN)
    path.crash()
    path.schema = path.tagger.schema = TableSchema.from_arrow(
        TABLE, SCHEMA.arrow.set(of, pa.field(COLUMN, kind))
    )


def wanted_entries(path: CommitPath) -> set[str]:
    """Those of the rows, as the newest commit says what type they have. Read without the product."""
    storage = path.storage
    reader = Reader(lambda at: list(storage.names(at)), storage.read, lambda: ["d1", "d2"], ordered=True)
    timeline = reader.data_timeline()
    newest = max(timeline.completed.items(), key=lambda each: each[1])
    name = next(each for each in storage.names(DATA_TIMELINE) if each.startswith("_".join(newest)))
    commit = decode.avro_document(storage.read(f"{DATA_TIMELINE}/{name}"))
    fields = json.loads(commit["extraMetadata"]["schema"])["fields"]
    is_double = "double" in next(each["type"] for each in fields if each["name"] == COLUMN)
    rows = reader.content(reader.view(timeline)).rows
    values = {key: float(each.number) if is_double else each.number for key, each in rows.items()}
    return {f"{value}${key}" for key, value in values.items()}


def texts_of_doubles(column: pa.Array) -> pa.Array:
    """As Java writes small ones."""
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())


@pytest.mark.parametrize("looks_again", [True, False])
def test_an_index_that_is_made_beside_epochs_has_all_rows_only_if_the_command_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks_again: bool
) -> None:
    """Counterexample 10: rows that are committed between the scan and the moment when it is switched on."""
    if not looks_again:
        monkeypatch.setattr(index_command, "_is_as_of", lambda *_: True)
    life = Life(tmp_path, TableType.MERGE_ON_READ)
    before = life.path.state().committed.epoch
    moment = Nth(0, life.epoch)
    life.make(lambda name, path: moment(name, path) if "/staged/" in path else None)
    life.run_until_idle()
    assert life.path.state().committed.epoch > before
    rows = {f"{each[COLUMN]}${key}" for key, each in life.path.rows().items()}
    assert (entries(life.storage) == rows) is looks_again
