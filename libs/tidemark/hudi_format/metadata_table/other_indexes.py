"""Indexes that Tidemark does not keep: bloom filters, expression indexes, and kinds of later releases.

A table that lists one is refused: what we commit would not be in it. Hudi's readers use an expression index
from its definition on, as a secondary one. So one that is defined and not listed is unfinished: it would miss
what we commit meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from tidemark.hudi_format.errors import IndexUnfinishedError, UnsupportedTableError
from tidemark.hudi_format.index_definitions import RECORD_INDEX
from tidemark.hudi_format.metadata_table.own_stats import STATS_PARTITIONS
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.table_config import TableConfig

NEEDED: Final = frozenset({"files", RECORD_INDEX})
"""The partitions of the metadata table without which Tidemark serves no table."""

BLOOM_FILTERS: Final = "bloom_filters"
EXPRESSION_PREFIX: Final = "expr_index_"
_BLOOM_OPTION: Final = "hoodie.metadata.index.bloom.filter.enable"
# These are in use when the table's property lists them, whatever their definitions say.
_SWITCHED_BY_PROPERTY: Final = NEEDED | STATS_PARTITIONS | {BLOOM_FILTERS}


def other_index_problems(config: TableConfig, defined: Collection[str]) -> Iterator[UnsupportedTableError]:
    """The reasons to refuse the table, each with the way out. ``defined``: the names of its definitions."""
    listed = sorted(_others(config.metadata_partitions))
    if listed:
        reasons = "; ".join(f"{name}: {_reason(name)}" for name in listed)
        yield UnsupportedTableError(
            f"the metadata table keeps {', '.join(listed)}, which Tidemark does not maintain ({reasons})",
            _way_out(config.name, listed),
        )
    for name in sorted(_others(defined) - set(listed) - _SWITCHED_BY_PROPERTY):
        yield IndexUnfinishedError(
            name,
            f"{name} is defined and not listed: it is being built, or was left half made",
            f"Wait until it is listed, or drop it with Hudi on Spark: {_drop(_user_name(name), config.name)}",
        )


def _others(names: Iterable[str]) -> set[str]:
    """Those of the names that are no index of a kind that Tidemark keeps."""
    return {name for name in names if not name.startswith(SECONDARY_PREFIX)} - NEEDED - STATS_PARTITIONS


def _reason(name: str) -> str:
    if name == BLOOM_FILTERS:
        return "keys that a commit writes to log files are in no filter"
    if name.startswith(EXPRESSION_PREFIX):
        return "only Spark can compute its expression"
    return "this release does not know its kind"


def _way_out(table: str, listed: Collection[str]) -> str:
    """Which statements drop them. Spark takes the name as it is listed, also of bloom filters."""
    dropped = "; ".join(_drop(name, table) for name in listed)
    way_out = f"Drop with Hudi on Spark, with the options that `tidemark table describe` prints: {dropped}"
    if BLOOM_FILTERS in listed:
        return f"{way_out}; let no writer set {_BLOOM_OPTION}, or its next write builds them again"
    return way_out


def _drop(name: str, table: str) -> str:
    return f"DROP INDEX {name} ON {table}"


def _user_name(name: str) -> str:
    """By which Spark finds an index that is not listed."""
    return name.removeprefix(EXPRESSION_PREFIX)
