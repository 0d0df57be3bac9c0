"""Writer tasks: run twice they change nothing, of a void attempt they publish nothing; files hold a model."""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
import pytest

from tests.simulation.commit_path import CommitPath, MemoryWorker
from tests.simulation.scripted_epochs import GROUP_A, check_end, first_epoch, row, second_epoch
from tests.simulation.test_random_faults import Input
from tidemark.epoch_protocol.batches import DataOp
from tidemark.epoch_protocol.errors import IncompleteRangeError
from tidemark.hudi_format.errors import CorruptFileError, FencedOutError
from tidemark.hudi_format.table_config import TableType
from tidemark.stream_writer.epoch_tasks import decode_task
from tidemark.stream_writer.tasks import run_task

BOTH_TYPES = pytest.mark.parametrize("table_type", list(TableType))
BOTH_MODES = pytest.mark.parametrize("ordered", [True, False], ids=["by event time", "by arrival"])


def second_planned(folder: Path, table_type: TableType) -> tuple[CommitPath, MemoryWorker]:
    path = CommitPath(folder, table_type, ordered=True)
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    path.step_coordinator()
    return path, MemoryWorker(path.client, path.clock)


@BOTH_TYPES
def test_a_second_run_of_the_same_tasks_changes_nothing(tmp_path: Path, table_type: TableType) -> None:
    path, worker = second_planned(tmp_path, table_type)
    tasks = path.run_open_attempt()
    first = [run_task(task, worker) for task in tasks]
    files = path.files()
    path.clock.advance(5.0)
    second = [run_task(task, worker) for task in tasks]
    assert path.files() == files
    for one, two in zip(first, second, strict=True):
        assert one.write_stats == two.write_stats
        assert one.metadata_logs == two.metadata_logs
    assert sum(len(outcome.write_stats) for outcome in first) == 1
    path.run_until_idle()
    check_end(path)


@BOTH_TYPES
def test_tasks_of_a_void_attempt_publish_nothing_and_leave_nothing(
    tmp_path: Path, table_type: TableType
) -> None:
    path, worker = second_planned(tmp_path, table_type)
    losing = path.run_open_attempt()
    path.fail_open_attempt(rewind=False)
    while path.state().committed.epoch == 1:
        path.step()
    path.run_until_idle()
    files = path.files()
    for task in losing:
        with pytest.raises(FencedOutError):
            run_task(task, worker)
    assert path.files() == files
    check_end(path)


@BOTH_TYPES
def test_tasks_of_an_ended_term_publish_nothing(tmp_path: Path, table_type: TableType) -> None:
    path, worker = second_planned(tmp_path, table_type)
    losing = path.run_open_attempt()
    path.crash()
    path.start_coordinator()
    files = path.files()
    for task in losing:
        with pytest.raises(FencedOutError):
            run_task(task, worker)
    assert path.files() == files
    path.run_until_idle()
    check_end(path)


def test_another_content_under_the_same_name_is_refused(tmp_path: Path) -> None:
    path, worker = second_planned(tmp_path, TableType.COPY_ON_WRITE)
    data, index = sorted(path.run_open_attempt(), key=lambda task: decode_task(task).work[0].topic)
    run_task(index, worker)
    outcome = run_task(data, worker)
    stat = msgspec.json.decode(outcome.write_stats[0])
    earlier = [name for name in path.files() if name.endswith(".parquet") and name != stat["path"]]
    path.storage.replace(stat["path"], path.storage.read(earlier[-1]))
    with pytest.raises(CorruptFileError, match="published before with other content"):
        run_task(data, worker)


def test_batches_that_are_gone_stop_the_task_and_the_epoch_is_tagged_anew(tmp_path: Path) -> None:
    path, worker = second_planned(tmp_path, TableType.MERGE_ON_READ)
    tasks = [task for task in path.run_open_attempt() if decode_task(task).work[0].topic == "data"]
    broken = decode_task(tasks[0])
    named = broken.work[0].ranges[0]
    more = msgspec.structs.replace(named.produced, records=named.produced.records + 1)
    work = msgspec.structs.replace(broken.work[0], ranges=[named._replace(produced=more)])
    files = path.files()
    with pytest.raises(IncompleteRangeError):
        run_task(msgspec.msgpack.encode(msgspec.structs.replace(broken, work=[work])), worker)
    assert path.files() == files
    path.fail_open_attempt(rewind=True)
    for _ in range(3):
        path.step()
    path.tagger.claim_anew(path.state())
    second_epoch(path)
    path.run_until_idle()
    assert path.state().generation == 1
    check_end(path)


@BOTH_TYPES
@BOTH_MODES
@pytest.mark.parametrize("seed", range(2))
def test_files_of_many_epochs_hold_what_the_model_holds(
    tmp_path: Path, table_type: TableType, ordered: bool, seed: int
) -> None:
    """Inserts, updates, moves, deletes and returns: base files merged, or base and log files together."""
    path, events = CommitPath(tmp_path, table_type, ordered=ordered), Input(Random(seed))
    dice = Random(seed)
    for _ in range(6):
        start = len(events)
        events.extend(dice.randint(3, 15))
        path.tagger.tag(events.tag(start, len(events)), consumed=len(events) - start)
        path.run_until_idle()
        live = events.replay(len(events))
        assert path.rows() == {key: event for key, (event, _) in live.items()}
        assert path.record_index() == {key: (event["day"], group) for key, (event, group) in live.items()}


def test_a_merge_takes_the_row_with_the_greater_ordering_value(tmp_path: Path) -> None:
    """An update whose stored value was only a bound may lose: the writer's merge decides."""
    for table_type in TableType:
        path = CommitPath(tmp_path / table_type.name, table_type, ordered=True)
        path.tag([(row("a", 5, 1), DataOp.INSERT, GROUP_A)])
        path.run_until_idle()
        path.tag([(row("a", 4, 2), DataOp.UPDATE, GROUP_A)])
        path.run_until_idle()
        assert path.rows() == {"a": row("a", 5, 1)}
