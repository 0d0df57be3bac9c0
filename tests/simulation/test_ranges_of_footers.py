"""Another writer rewrites rows of ours, with the options that keep the column stats, and takes the ranges
from footers; or it updates rows in part. Where a footer has no bounds, and the rows not all columns, filters
lose rows until our next commit, and none from then on.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.simulation.commit_path import CommitPath
from tests.simulation.kept_stats import compact_and_clean
from tests.simulation.merging_engine import MergingEngine
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import GROUP_A, GROUP_B, row
from tests.simulation.scripted_tagger import TABLE
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS
from tidemark.hudi_format.key_digest import DIGESTS_KEY
from tidemark.hudi_format.metadata_table.own_stats import kept_stats_columns
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.timeline import Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata, encode_commit_metadata
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import verify_table

SCHEMA = TableSchema.from_arrow(
    TABLE,
    pa.schema(
        [
            ("id", pa.string()),
            ("day", pa.string()),
            ("ts", pa.int64()),
            ("v", pa.int64()),
            ("d", pa.float64()),
            ("s", pa.string()),
        ]
    ),
)
STATS = ["v", "d", "s"]
ODD = {"a number that is none": (math.nan, "b"), "a long text": (2.0, "b" * 5_000)}
# Ranges with 0.0 in them, and with nulls, whose footers have to be looked at; and rows that are not there.
PLAIN = {
    "a zero": (0.0, "b"),
    "nulls alone": (None, None),
    "a null": (-1.0, None),
    "a text": (2.0, "b" * 4_000),
}


def after_first(folder: Path, table_type: TableType, number: float | None, text: str | None) -> CommitPath:
    path = CommitPath(folder, table_type, ordered=True, schema=SCHEMA, stats=STATS)
    path.tag([({**row("a", 1, 1), "d": number, "s": text}, DataOp.INSERT, GROUP_A)])
    path.tag([({**row("b", 1, 1), "d": 7.0 if number else number, "s": text}, DataOp.INSERT, GROUP_A)])
    path.tag([({**row("c", 1, 1, "d2"), "d": 1.0, "s": "c"}, DataOp.INSERT, GROUP_B)])
    path.run_until_idle()
    return path


def next_epoch(path: CommitPath) -> None:
    """Tagged anew if the coordinator rewinds."""
    generation, rows = path.state().generation, {**row("c", 2, 2, "d2"), "d": 1.0, "s": "c"}
    path.tag([(rows, DataOp.UPDATE, GROUP_B)])
    path.run_until_idle()
    if path.state().generation > generation:
        path.tagger.claim_anew(path.state())
        path.tag([(rows, DataOp.UPDATE, GROUP_B)])
        path.run_until_idle()


@pytest.mark.parametrize("action", [Action.COMMIT, Action.COMPACTION])
@pytest.mark.parametrize("traces", ["there", "archived", "cleaned"])
@pytest.mark.parametrize(("values", "column"), [("a number that is none", "d"), ("a long text", "s")])
def test_ranges_that_a_footer_did_not_have_end_the_stats(
    tmp_path: Path, action: Action, traces: str, values: str, column: str
) -> None:
    path = after_first(tmp_path, TableType.COPY_ON_WRITE, *ODD[values])
    path.crash()
    other = OtherEngine(path.storage, path.clock, action)
    other.rewrite(SCHEMA, lambda rows: rows, [*STATS_META_COLUMNS, *STATS])
    counts = verify_table(path.storage, lambda _: None).findings.counts
    assert counts == {Kind.COLUMN_STATS_WRONG: 1}
    if traces == "archived":
        OtherEngine(path.storage, path.clock, Action.COMMIT).commit(SCHEMA)
        other.archive()
    elif traces == "cleaned":
        compact_and_clean(path.storage, path.clock)
    next_epoch(path)
    assert kept_stats_columns(path.storage, read_table_config(path.storage)) == []
    assert path.context is not None
    assert path.context.taken_out is not None
    assert f"has wrong ranges of {column} (apache/hudi#18754 and #18755)" in path.context.taken_out.reason
    assert verify_table(path.storage, lambda _: None).agrees


@pytest.mark.parametrize("traces", ["there", "cleaned"])
@pytest.mark.parametrize("values", ["a number that is none", "a long text"])
def test_footers_of_our_own_compactions_are_not_judged(tmp_path: Path, values: str, traces: str) -> None:
    """Their ranges are of the rows, and their footers lack the same bounds as those of others."""
    path = after_first(tmp_path, TableType.COPY_ON_WRITE, *ODD[values])
    path.crash()
    other = OtherEngine(path.storage, path.clock, Action.COMPACTION)
    other.rewrite(SCHEMA, lambda rows: rows, [*STATS_META_COLUMNS, *STATS])
    newest = load_timeline(path.storage).completed(Action.COMPACTION)[-1]
    metadata = decode_commit_metadata(path.storage.read(instant_path(newest)), "commit")
    ours = replace(metadata, extra_metadata={**metadata.extra_metadata, DIGESTS_KEY: "{}"})
    path.storage.replace(instant_path(newest), encode_commit_metadata(ours))
    if traces == "cleaned":
        compact_and_clean(path.storage, path.clock)
    next_epoch(path)
    assert kept_stats_columns(path.storage, read_table_config(path.storage)) == STATS


@pytest.mark.parametrize("traces", ["there", "cleaned"])
@pytest.mark.parametrize("values", PLAIN)
def test_ranges_of_whole_footers_stay(tmp_path: Path, traces: str, values: str) -> None:
    path = after_first(tmp_path, TableType.COPY_ON_WRITE, *PLAIN[values])
    other = OtherEngine(path.storage, path.clock, Action.COMMIT)
    other.rewrite(SCHEMA, lambda rows: rows, [*STATS_META_COLUMNS, *STATS])
    if traces == "cleaned":
        compact_and_clean(path.storage, path.clock)
    next_epoch(path)
    assert kept_stats_columns(path.storage, read_table_config(path.storage)) == STATS
    assert path.context is not None
    assert path.context.taken_out is None
    assert verify_table(path.storage, lambda _: None).agrees


@pytest.mark.parametrize("traces", ["there", "cleaned"])
@pytest.mark.parametrize(("merged", "lacking"), [(["v"], "d, s"), (["v", "d", "s"], "")])
def test_a_merge_of_some_columns_ends_the_stats(
    tmp_path: Path, traces: str, merged: list[str], lacking: str
) -> None:
    """Their record of a column that it lacks says that all of its values are null: v = 2 and d = 1.0 finds
    nothing.
    """
    path = after_first(tmp_path, TableType.MERGE_ON_READ, 1.0, "b")
    other = MergingEngine(path.storage, path.clock, Action.DELTA_COMMIT)
    other.merge_into(SCHEMA, {"a": {"v": 2, "d": 1.0, "s": None}}, merged, [*STATS_META_COLUMNS, *STATS])
    if traces == "cleaned":
        compact_and_clean(path.storage, path.clock)
    next_epoch(path)
    kept = kept_stats_columns(path.storage, read_table_config(path.storage))
    assert kept == ([] if lacking else STATS)
    assert path.context is not None
    taken = path.context.taken_out
    assert (taken is None) is (not lacking)
    assert taken is None or taken.reason.endswith(f"updates rows in part, and has no ranges of {lacking}")
