"""Another engine that updates some columns of rows in a log file, as MERGE INTO of Hudi on Spark does."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.other_engine import OtherEngine, list_data_files
from tests.simulation.scripted_epochs import GROUP_A
from tidemark.hudi_format.column_ranges import column_ranges
from tidemark.hudi_format.file_group.base_file import attach_meta_columns
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.file_group.write_stats import log_append_stat
from tidemark.hudi_format.log_file import BlockType, HeaderKey, frame_block
from tidemark.hudi_format.metadata_table.partitions.column_stats import file_records
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_view import TableView

_DAY = "d1"
_TS = 9


class MergingEngine(OtherEngine):
    """Rows of `GROUP_A`."""

    def merge_into(
        self,
        schema: TableSchema,
        rows: Mapping[str, Mapping[str, Any]],
        columns: Sequence[str],
        stats_of: Sequence[str],
    ) -> None:
        """Updates these ``columns`` of the ``rows``, by key, and makes the column stats of ``stats_of`` that
        Hudi makes: columns that the log lacks are null. All columns are no partial update.
        """
        self._look()
        instant, storage = self._instants.next(), self._storage
        (merged,) = (
            each
            for each in TableView.load(storage).slices(list_data_files(storage))
            if each.file_id == GROUP_A
        )
        whole = pa.Table.from_pylist(
            [
                {"id": key, "day": _DAY, "ts": _TS} | {name: row[name] for name in columns}
                for key, row in rows.items()
            ],
            schema=schema.arrow,
        )
        is_partial = set(columns) != {*schema.arrow.names} - {"id", "day", "ts"}
        kept = ["id", "ts", *columns] if is_partial else schema.arrow.names
        written = TableSchema.from_arrow(
            schema.table_name, pa.schema([schema.arrow.field(name) for name in kept])
        )
        user = whole.select(kept)
        data = attach_meta_columns(user, user.column("id"), _DAY, instant, 0, GROUP_A)
        name = str(LogFileName(GROUP_A, instant, 1, "0-9-9"))
        content = io.BytesIO()
        pq.write_table(data, content)
        headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: written.avro_with_meta_json}
        if is_partial:
            headers[HeaderKey.IS_PARTIAL] = "true"
        block = frame_block(BlockType.PARQUET_DATA, headers, content.getvalue())
        storage.create(join_path(_DAY, name), block)
        stat = log_append_stat(
            _DAY,
            GROUP_A,
            name,
            len(block),
            instant,
            merged.base_file,
            updates=len(rows),
            inserts=0,
            deletes=0,
        )
        of_rows = attach_meta_columns(whole, whole.column("id"), _DAY, instant, 0, GROUP_A)
        self._commit(instant, schema, [stat], {}, file_records(_DAY, name, column_ranges(of_rows, stats_of)))
