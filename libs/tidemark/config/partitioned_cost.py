"""What a user gives up with `table.index.kind: partitioned`, as sentences for `config check`."""

from __future__ import annotations

from typing import Final

from tidemark.config.model import ConfiguredIndexKind, TableConfigFile

_GIVEN_UP: Final = (
    "table.index.kind: partitioned: a record key is unique in each data partition only, not in the table. An "
    "event with another partition value than the row has inserts a second row, and the old one stays (with "
    "global it moves)",
    "table.index.kind: partitioned: a question by key names its partition (`tidemark lookup --partition`). "
    "Spark with Hudi 1.2.0 does not use this index for queries by record key, and reads the files that the "
    "other filters leave",
    "table.index.kind: partitioned: the table cannot have secondary indexes, its index cannot be warmed or "
    "rebuilt by Tidemark, and partition values with a dot go to the dead letters",
)
_BY_NULL_VALUE: Final = (
    "table.index.kind: partitioned: a delete names its partition. A record with a null value names none and "
    "goes to the dead letters: set input.delete_field, and send deletes with their partition fields"
)


def partitioned_costs(config: TableConfigFile) -> list[str]:
    """The sentences; none for a global index."""
    if config.table.index.kind is not ConfiguredIndexKind.PARTITIONED:
        return []
    source = config.input
    has_named_deletes = source.format.is_debezium or source.delete_field is not None
    return [*_GIVEN_UP, *(() if has_named_deletes else (_BY_NULL_VALUE,))]
