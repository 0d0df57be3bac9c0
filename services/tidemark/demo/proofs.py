"""The demo's proofs after the stream: the table read by another reader, compared with the model, and
verified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidemark.demo.comparison import TableDifference
from tidemark.demo.model import TableModel
from tidemark.demo.report import Check, KeyStory
from tidemark.table_verification.findings import Kind
from tidemark.table_verification.verify import Verification


def read_with_hudi_rs(table_path: str) -> pa.Table:
    """All rows of the newest snapshot, as hudi-rs reads them."""
    from hudi import HudiReadOptions, HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(table_path).build().read(HudiReadOptions())
    return pa.Table.from_batches([pa.record_batch(batch) for batch in batches])


def index_checks(result: Verification) -> tuple[Check, ...]:
    """The result of `tidemark verify` as checks of the report."""
    counts = result.findings.counts
    index = (
        Kind.ROW_WITHOUT_ENTRY,
        Kind.ENTRY_WITHOUT_ROW,
        Kind.ENTRY_ELSEWHERE,
        Kind.ENTRY_TWICE,
        Kind.ENTRY_IN_WRONG_SHARD,
    )
    wrong = sum(counts.get(kind, 0) for kind in index)
    others = [count for kind, count in counts.items() if kind not in index]
    return (
        Check.of_counts("record index entries", result.rows, result.entries),
        Check.of_counts("index entries wrong, missing or too many", 0, wrong),
        Check.of_counts("other differences between files, metadata and commits", 0, sum(others)),
    )


def stories(model: TableModel, locations: Sequence[Mapping[str, Any]]) -> tuple[KeyStory, ...]:
    """The stories of the keys that were looked up: what happened to each, and where the index says it
    is now.
    """
    titles = ("A flight that moved to another day", "A flight that was cancelled")
    return tuple(
        KeyStory(title, location["key"], tuple(model.life(location["key"])), where_now(location))
        for title, location in zip(titles, locations, strict=False)
    )


def where_now(location: Mapping[str, Any]) -> str:
    """A sentence that says where a key is according to the index."""
    if location["file_id"] is None:
        return f"the index has no entry (shard {location['shard']})"
    return (
        f"in partition {location['partition_path']}, file group {location['file_id']}, "
        f"says the index (shard {location['shard']}, answered by tier {location['tier']})"
    )


def difference_lines(difference: TableDifference, result: Verification) -> list[str]:
    """Examples of differences, from the comparison and from `tidemark verify`; empty when there are none."""
    lines = list(difference.examples)
    for kind, examples in result.findings.examples.items():
        lines += [f"{kind.value}: {example}" for example in examples[:5]]
    return lines
