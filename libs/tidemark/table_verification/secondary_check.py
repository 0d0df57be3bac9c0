"""Compares the secondary indexes that a table lists with its rows: the living entries of each are exactly
(text of the value, record key) of all live rows.

Readers open only the files of rows that an index names: a missing entry loses a row, one too many costs a
look into a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError, HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import split_composite_keys
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout, layouts_as_of
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.secondary_differences import (
    secondary_differences,
    sorted_keys,
    stored_entries,
)
from tidemark.hudi_format.secondary_slices import RowEntries
from tidemark.hudi_format.table_config import TableConfig
from tidemark.table_verification.findings import EXAMPLES_MAX, Findings, Kind

_SAY_EVERY: Final = 100


def check_secondary_indexes(
    snapshot: MetadataTableSnapshot,
    config: TableConfig,
    schema: TableSchema,
    slices: Sequence[FileSlice],
    findings: Findings,
    say: Callable[[str], None],
) -> None:
    """Adds what is wrong to `findings`. Reads the columns of all live rows of `slices` and all entries;
    memory holds those of one file, and the rest is sorted on disk, in the folder that TMPDIR names.

    Raises FileMissingError.
    """
    try:
        layouts = layouts_as_of(snapshot, config)
    except UnsupportedTableError as error:
        findings.add_one(Kind.SECONDARY_INDEX_WRONG, error.reason)
        return
    for layout in layouts:
        say(f"comparing {layout.name} with the column {layout.column}")
        try:
            _Check(snapshot, layout, findings).compare(config, schema, slices, say)
        except FileMissingError:
            raise
        except (HudiFormatError, OSError) as error:
            findings.add_one(Kind.SECONDARY_INDEX_WRONG, f"{layout.name}: {error}")


class _Check:
    """The comparison of one index."""

    def __init__(self, snapshot: MetadataTableSnapshot, layout: SecondaryLayout, findings: Findings) -> None:
        self._snapshot, self._layout, self._findings = snapshot, layout, findings

    def compare(
        self,
        config: TableConfig,
        schema: TableSchema,
        slices: Sequence[FileSlice],
        say: Callable[[str], None],
    ) -> None:
        self._layout.check_schema(schema)
        rows_of = RowEntries(self._snapshot.storage, config, schema, self._layout.column)

        def rows() -> Iterator[pa.StringArray]:
            for number, file_slice in enumerate(slices):
                if number and number % _SAY_EVERY == 0:
                    say(f"read {number} of {len(slices)} file groups for {self._layout.name}")
                yield rows_of.of(file_slice)

        with tempfile.TemporaryDirectory(prefix="tidemark-verify-") as folder:
            scratch = Path(folder)
            stored = stored_entries(self._snapshot, self._layout, self._astray)
            for missing, extra in secondary_differences(sorted_keys(rows(), scratch), stored, scratch):
                self._add(Kind.SECONDARY_ENTRY_MISSING, missing, "not in the index")
                self._add(Kind.SECONDARY_ENTRY_EXTRA, extra, "no such row")

    def _astray(self, keys: pa.StringArray, group: ShardId) -> None:
        self._add(Kind.SECONDARY_INDEX_WRONG, keys, f"in group {group}")

    def _add(self, kind: Kind, keys: pa.StringArray, what: str) -> None:
        if not len(keys):
            return
        name = self._layout.name
        texts, record_keys = split_composite_keys(keys[:EXAMPLES_MAX], name)
        pairs = zip(record_keys.to_pylist(), texts.to_pylist(), strict=True)
        examples = (f"{name}: {key} with {self._layout.column} {text!r}: {what}" for key, text in pairs)
        self._findings.add(kind, len(keys), examples)
