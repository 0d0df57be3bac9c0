"""A table as `tests/hudi_rules` see it, held against what Hudi on Spark reads, writes and deletes."""

from __future__ import annotations

from pathlib import Path

from tests.hudi_rules import cleaning
from tests.hudi_rules.slices import Group, parse_data_file
from tests.hudi_rules.table import DATA, METADATA, HudiTable
from tests.hudi_rules.timeline import Instant, Timeline
from tests.hudi_rules.undoing import files_of
from tests.interop.judge import HudiJudge
from tests.interop.read_table import ReadTable
from tests.interop.spark_operations import SparkOperations
from tests.interop.verdict import assert_same_rows
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import OrderingField


def names_in(table: Path, folder: str) -> list[str]:
    found = table / folder
    return sorted(each.name for each in found.iterdir() if each.is_file()) if found.is_dir() else []


def look(table: Path, root: str = DATA) -> HudiTable:
    """The table by its folders."""
    partitions = [each.name for each in table.iterdir() if each.is_dir() and each.name != ".hoodie"]
    files = {each: [n for n in names_in(table, each) if parse_data_file(n)] for each in partitions}
    return HudiTable(lambda f: names_in(table, f), lambda p: (table / p).read_bytes(), files, root)


def metadata_timeline(table: Path) -> Timeline:
    return look(table, METADATA).timeline


def assert_slices(judge: HudiJudge, table: Path) -> None:
    """What the rules take of each file group, merged, is what Spark sees when it lists folders."""
    view = ReadTable(table)
    config, schema = view.config, view.schema()
    ordering = OrderingField.of(schema, config.ordering_fields[0])
    found = []
    for (partition, file_id), (base, logs) in look(table).read_slices().items():
        group = FileSlice(partition, file_id, base, "", tuple(logs))
        found += read_slice(view.storage, group, schema, config.merge_mode, ordering).to_pylist()
    wanted = judge.snapshot(table, metadata=False)
    assert wanted
    assert_same_rows([{name: row[name] for name in wanted[0]} for row in found], wanted, "rows of the slices")


def assert_cleaned(
    operations: SparkOperations, plan: cleaning.CleanPlan | None, policy: str, keep: int
) -> None:
    """Hudi deletes what the rules say, and says the same instant to retain."""
    before = {each.requested for each in look(operations.table).timeline.completed("clean")}
    operations.clean(policy, keep)
    ruled = look(operations.table)
    done = [each for each in ruled.timeline.completed("clean") if each.requested not in before]
    if plan is None:
        assert done == []
        return
    assert len(done) == 1
    document = ruled.document(done[0])
    deleted = {p: sorted(each["deletePathPatterns"]) for p, each in document["partitionMetadata"].items()}
    assert {p: names for p, names in deleted.items() if names} == {
        p: sorted(names) for p, names in plan.files.items()
    }
    retained = plan.retained.requested if plan.retained is not None else ""
    assert document["earliestCommitToRetain"] == retained
    dropped = {p for p, each in document["partitionMetadata"].items() if each["isPartitionDeleted"]}
    assert dropped == set(plan.partitions)


def newest(table: Path) -> Instant:
    return look(table).timeline.writes()[-1]


def written(before: HudiTable, after: HudiTable) -> dict[Group, str]:
    """File group -> what the newest commit wrote there: "log", "base", or "new" for a group that was not
    there before.
    """
    found: dict[Group, str] = {}
    for partition, names in files_of(after.files, after.timeline.writes()[-1].requested).items():
        for name in names:
            file = parse_data_file(name)
            assert file is not None
            group = (partition, file.file_id)
            kind = "log" if file.is_log else "base"
            found[group] = kind if group in before.groups else "new"
    return found
