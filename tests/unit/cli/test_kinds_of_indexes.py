"""Every kind of index that Hudi 1.2.0 can put into a table, and one that a later release may: what adopting,
describing and the doctor say of a table that has it. What a running stream does is in
`tests/simulation/test_changed_indexes.py` and `test_unfinished_index.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from testing.clock import ManualClock
from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli.main import main
from tidemark.config import load_config
from tidemark.doctor.table import table as doctor
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import read_index_definitions, write_index_definitions
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import read_properties, update_properties

LISTED = "hoodie.table.metadata.partitions"
BUILDING = f"{LISTED}.inflight"
SPARK_DROPS = "Drop with Hudi on Spark, with the options that `tidemark table describe` prints: DROP INDEX"


def defined(name: str, kind: str, column: str = "at") -> dict[str, Any]:
    return {
        "indexName": name,
        "indexType": kind,
        "indexFunction": "identity" if kind == "secondary_index" else "from_unixtime",
        "sourceFields": [column],
        "indexOptions": {},
        "version": "V2",
    }


EXPRESSION = defined("expr_index_by_day", "column_stats")
OF_BLOOMS = defined("expr_index_by_note", "bloom_filters", "note")
SECONDARY = defined("secondary_index_by_at", "secondary_index")
REFUSED: Mapping[str, tuple[str, list[dict[str, Any]], list[str]]] = {
    "bloom filters": (
        "bloom_filters",
        [],
        ["bloom_filters: keys that a commit writes to log files", f"{SPARK_DROPS} bloom_filters ON orders",
         "let no writer set hoodie.metadata.index.bloom.filter.enable"],
    ),
    "an expression index of ranges": (
        "expr_index_by_day",
        [EXPRESSION],
        ["expr_index_by_day: only Spark can compute", f"{SPARK_DROPS} expr_index_by_day ON orders"],
    ),
    "an expression index of bloom filters": (
        "expr_index_by_note",
        [OF_BLOOMS],
        ["expr_index_by_note: only Spark can compute", f"{SPARK_DROPS} expr_index_by_note ON orders"],
    ),
    "a functional index, as Hudi 1.0 called it": (
        "func_index_by_day",
        [defined("func_index_by_day", "column_stats")],
        ["func_index_by_day: this release does not know", f"{SPARK_DROPS} func_index_by_day ON orders"],
    ),
    "a kind of a later release": (
        "vector_index_of_note",
        [defined("vector_index_of_note", "vector_index", "note")],
        ["vector_index_of_note: this release does not know", f"{SPARK_DROPS} vector_index_of_note ON orders"],
    ),
    "several": (
        "bloom_filters,expr_index_by_day",
        [EXPRESSION],
        ["DROP INDEX bloom_filters ON orders; DROP INDEX expr_index_by_day ON orders"],
    ),
    "an expression index that is half made": (
        "",
        [EXPRESSION],
        ["expr_index_by_day is defined and not listed", "Wait until", "DROP INDEX by_day ON orders"],
    ),
    "a kind of a later release that is half made": (
        "",
        [defined("vector_index_of_note", "vector_index", "note")],
        ["vector_index_of_note is defined and not listed", "DROP INDEX vector_index_of_note ON orders"],
    ),
    "a secondary index that is half made": (
        "",
        [SECONDARY],
        ["secondary_index_by_at is defined and not listed", "`tidemark index drop by_at`"],
    ),
    "a secondary index without its definition": (
        "secondary_index_by_at",
        [],
        ["secondary_index_by_at is in use without a definition", "`tidemark index drop`"],
    ),
}  # fmt: skip


class Made:
    """A table of ours, which another engine then gave an index."""

    def __init__(self, folder: Path, listed: str, definitions: list[dict[str, Any]]) -> None:
        new_table(folder / "table").commit(orders(("k1", "2026-01-01", 7)))
        self.file, self.storage = write_config(folder), LocalStorage(folder / "table")
        new = {each["indexName"]: each for each in definitions}
        write_index_definitions(self.storage, {**read_index_definitions(self.storage), **new})
        names = ",".join(filter(None, ("files,record_index", listed)))
        update_properties(self.storage, {LISTED: names})

    def described(self, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        assert main(["table", "describe", "-c", str(self.file), "--json"]) == 0
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    def refused(self, capsys: pytest.CaptureFixture[str]) -> list[str]:
        """What adopting, describing and the doctor say; adopting changes nothing."""
        before = read_properties(self.storage), read_index_definitions(self.storage)
        assert main(["table", "adopt", "-c", str(self.file), "--yes"]) == 2
        adopting = capsys.readouterr().err
        assert (read_properties(self.storage), read_index_definitions(self.storage)) == before
        described = self.described(capsys)
        assert not described["servable"]
        assert described["foreign_writer_options"], "the way out asks for them"
        with pytest.raises(UnsupportedTableError) as error:
            list(doctor(load_config(self.file), ManualClock(0), served=False))
        return [adopting, described["not_servable"], str(error.value)]


@pytest.mark.parametrize("kind", REFUSED)
def test_a_table_is_refused_with_the_index_the_reason_and_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    listed, definitions, wanted = REFUSED[kind]
    for said in Made(tmp_path, listed, definitions).refused(capsys):
        text = " ".join(said.split())
        assert [part for part in wanted if part not in text] == [], text


@pytest.mark.parametrize("name", ["column_stats", "bloom_filters", "expr_index_by_day", "record_index"])
def test_a_table_with_an_index_that_is_being_built_is_refused_at_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    made = Made(tmp_path, "", [])
    update_properties(made.storage, {BUILDING: name})
    for said in made.refused(capsys):
        assert f"{BUILDING} is {name}: an index is being built" in " ".join(said.split())


@pytest.mark.parametrize(
    ("listed", "definitions", "kept"),
    [
        ("partition_stats", [], {"files", "record_index"}),
        ("column_stats,partition_stats", [], {"files", "record_index"}),
    ],
)
def test_stats_without_a_definition_are_taken_out_by_adopting(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    listed: str,
    definitions: list[dict[str, Any]],
    kept: set[str],
) -> None:
    made = Made(tmp_path, listed, definitions)
    assert "`tidemark table adopt`" in made.described(capsys)["not_servable"]
    assert main(["table", "adopt", "-c", str(made.file), "--yes"]) == 0
    capsys.readouterr()
    assert made.described(capsys)["servable"]
    assert set(made.described(capsys)["metadata_partitions"]) == kept
