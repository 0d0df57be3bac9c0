"""The checkers of the simulation, and Hudi's rules that they and the foreign engine follow, share no code
with what they check. The engine itself makes files with the product's encoders, and takes no more of it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ENGINE = TESTS / "simulation" / "world" / "foreign"
CHECKERS = TESTS / "simulation" / "world" / "checkers"
RULES = TESTS / "hudi_rules"
BY_NAME = {"importlib", "pkgutil", "runpy"}
ALLOWED = {*sys.stdlib_module_names, "fastavro", "pyarrow"} - BY_NAME
# Bytes, names, and what is passed in. Nothing that reads a timeline, decides, or does a step of a commit.
ENCODERS = {
    "tidemark.hudi_format.column_ranges": {"column_ranges"},
    "tidemark.hudi_format.file_group.base_file": {"attach_meta_columns", "write_base_file"},
    "tidemark.hudi_format.file_group.changes": {"Deletes"},
    "tidemark.hudi_format.file_group.log_blocks": {"data_log_bytes"},
    "tidemark.hudi_format.file_group.names": {"BaseFileName", "LogFileName"},
    "tidemark.hudi_format.file_group.write_stats": {"log_append_stat", "new_base_file_stat"},
    "tidemark.hudi_format.hfile": {"write_hfile"},
    "tidemark.hudi_format.metadata_table.delta_commit": {
        "delta_commit_metadata", "empty_log", "file_changes", "publish_files_log", "publish_log",
    },
    "tidemark.hudi_format.metadata_table.partitions.column_stats": {
        "COLUMN_STATS", "StatsChanges", "file_records",
    },
    "tidemark.hudi_format.metadata_table.partitions.files": {
        "ALL_PARTITIONS_KEY", "FileChange", "FilesRecord",
    },
    "tidemark.hudi_format.metadata_table.partitions.partition": {"MetadataLogFile"},
    "tidemark.hudi_format.metadata_table.partitions.record_index": {
        "DELETED", "RecordIndexEntries", "record_index_log", "write_record_index_log",
    },
    "tidemark.hudi_format.metadata_table.partitions.secondary_index": {
        "SecondaryChanges", "SecondaryIndexPartition",
    },
    "tidemark.hudi_format.metadata_table.record_schema": {
        "RECORD_TYPE_ALL_PARTITIONS", "RECORD_TYPE_FILES", "metadata_record_schema",
    },
    "tidemark.hudi_format.model": {"RecordLocation", "ShardId", "instant_from_ms", "instant_to_ms"},
    "tidemark.hudi_format.ordering": {"OrderingField"},
    "tidemark.hudi_format.publication.unfenced": {"Unfenced"},
    "tidemark.hudi_format.record_index_hash": {"record_index_shard"},
    "tidemark.hudi_format.schema": {"TableSchema"},
    "tidemark.hudi_format.storage.base": {"join_path"},
    "tidemark.hudi_format.timeline.avro_container": {"encode_container"},
    "tidemark.hudi_format.timeline.avro_records": {
        "SCHEMA_KEY", "CommitMetadata", "WriteStat", "encode_commit_metadata", "group_stats",
    },
    "tidemark.hudi_format.timeline.service_records": {
        "CompactionOperation", "RequestedCompaction", "RollbackMetadata", "RollbackPartition", "RollbackPlan",
        "RollbackRequest", "encode_compaction_plan", "encode_rollback_metadata", "encode_rollback_plan",
    },
    "tidemark.stream_runtime.ids": {"IdSource"},
}  # fmt: skip
OWN = ("tests.simulation.world.checkers", "tests.hudi_rules")


def imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            found.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("__import__", "exec", "eval"):
            found.add("something by name")
    return found


@pytest.mark.parametrize(("folder", "own"), [(CHECKERS, OWN), (RULES, OWN[1:])], ids=["checkers", "rules"])
def test_what_judges_imports_nothing_of_the_product(folder: Path, own: tuple[str, ...]) -> None:
    files = sorted(folder.glob("*.py"))
    assert len(files) >= 5
    for file in files:
        foreign = {
            name
            for name in imported(file)
            if name.partition(".")[0] not in ALLOWED and not name.startswith(own)
        }
        assert foreign == set(), file.name


@pytest.mark.parametrize("name", ["world.py", "watched_stops.py", "watched_work.py"])
def test_bounds_on_the_product_are_not_its_own(name: str) -> None:
    """A limit of the product that is raised must not raise what is asked of it."""
    tree = ast.parse((CHECKERS.parent / name).read_text())
    taken = [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("tests.")
        for alias in node.names
    ]
    assert [each for each in taken if each.isupper()] == []


def test_the_other_engine_takes_encoders_of_the_product_and_none_of_its_rules() -> None:
    files = sorted(ENGINE.glob("*.py"))
    assert len(files) >= 5
    for file in files:
        assert foreign_to_engine(file.read_text()) == set(), file.name


def test_a_rule_of_the_product_in_the_other_engine_is_noticed() -> None:
    assert foreign_to_engine("from tidemark.hudi_format.commit.rollback import rollback_pending") != set()
    assert foreign_to_engine("from tidemark.hudi_format.timeline import load_timeline") != set()
    assert foreign_to_engine("from tidemark.hudi_format.model import InstantGenerator") != set()
    assert foreign_to_engine("import tidemark.hudi_format.commit") != set()
    assert foreign_to_engine("import importlib") != set()


def foreign_to_engine(text: str) -> set[str]:
    """What a module of the engine imports and may not."""
    tree = ast.parse(text)
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names if not _is_ours(each.name)}
        elif isinstance(node, ast.ImportFrom) and not _is_ours(node.module or ""):
            allowed = ENCODERS.get(node.module or "", set())
            found |= {f"{node.module}.{each.name}" for each in node.names if each.name not in allowed}
    return found


def _is_ours(module: str) -> bool:
    engine = ("tests.simulation.world.foreign", "tests.simulation.world.ports", "numpy")
    return module.startswith((*OWN, *engine)) or module.partition(".")[0] in ALLOWED
