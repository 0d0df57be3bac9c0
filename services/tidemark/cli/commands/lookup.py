"""`tidemark lookup`: where keys live; a few keys as a table, a file of keys as CSV or JSON; the rows of a
value, page by page.
"""

from __future__ import annotations

import argparse
import codecs
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from tidemark.console.arguments import Commands, add_command, whole_number
from tidemark.console.errors import WRONG_USE, CliError
from tidemark.console.output import Output, columns
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

if TYPE_CHECKING:
    import pyarrow as pa

_KEY_BYTES_MAX: Final = 32_767
"""An HFile, and so the record index, cannot hold longer ones."""
_MARK: Final = codecs.BOM_UTF8
"""What many programs put at the beginning of a text file; no part of the first key."""
_SAY_EVERY_S: Final = 5.0
_ROWS_DEFAULT: Final = 1_000
_ROWS_MAX: Final = 10_000
_RECORD_KEY: Final = "_hoodie_record_key"


def add(commands: Commands) -> None:
    """Adds the command."""
    lookup = add_command(
        commands,
        "lookup",
        run_lookup,
        "show the partition and file group of record keys, and the tier of the index that knew each",
        "  tidemark lookup -c flights.yaml 'flight_date:2013-01-01,carrier:UA,flight:1545,origin:EWR'\n"
        "  tidemark lookup -c flights.yaml --file keys.txt > places.csv\n"
        "  tidemark lookup -c flights.yaml --file rows.parquet --column id --json > places.json\n"
        "  cut -f1 keys.tsv | tidemark lookup -c flights.yaml --file -\n"
        "  tidemark lookup -c flights.yaml --where origin=EWR --limit 100\n\n"
        "With --where, a page of the rows that have a value in a column with a secondary index: from the\n"
        "coordinator, or from the table's files where none answers. docs/secondary-index.md has how values\n"
        "are written.",
    )
    asked = lookup.add_mutually_exclusive_group(required=True)
    asked.add_argument(
        "keys", nargs="*", default=[], metavar="KEY", help="record keys, as _hoodie_record_key has them"
    )
    asked.add_argument(
        "--file",
        metavar="F",
        help="look up all keys of a file, in its order: text with one key a line (- is stdin), or a Parquet "
        "file by its name's end; prints CSV, or with --json one document, while it reads",
    )
    asked.add_argument(
        "--where", metavar="COLUMN=VALUE", help="the rows with this value in an indexed column"
    )
    asked.add_argument("--where-null", metavar="COLUMN", help="the rows without a value in an indexed column")
    lookup.add_argument(
        "--partition",
        metavar="PATH",
        help="with a partitioned record index, where a key may be in several partitions: the path of the one "
        "in which all keys are looked up, as _hoodie_partition_path has it (docs/partitioned-index.md)",
    )
    lookup.add_argument(
        "--limit",
        type=whole_number(1, _ROWS_MAX),
        metavar="N",
        help=f"with --where: so many rows at most (default: {_ROWS_DEFAULT}; {_ROWS_MAX} at most)",
    )
    lookup.add_argument(
        "--page-token", metavar="T", help="with --where: the rows behind those of the answer that named T"
    )
    lookup.add_argument(
        "--column",
        metavar="NAME",
        help=f"the Parquet file's column of keys (default: {_RECORD_KEY}, else its only column of text)",
    )


def run_lookup(options: argparse.Namespace) -> int:
    """Prints where the keys are. Exit code 0 also when keys are not in the table."""
    if options.column and not _is_parquet(options.file):
        raise CliError("--column names a column of a Parquet file: --file has none", WRONG_USE)
    if options.where is not None or options.where_null is not None:
        if options.partition is not None:
            raise CliError("--partition is for KEY and --file: a value is looked up everywhere", WRONG_USE)
        return _look_up_value(options)
    if options.limit is not None or options.page_token is not None:
        raise CliError("--limit and --page-token are for --where and --where-null", WRONG_USE)
    return _look_up_file(options) if options.file is not None else _look_up_keys(options)


def _look_up_keys(options: argparse.Namespace) -> int:
    from tidemark.console.admin_client import connect

    with connect(options.config) as client:
        locations = client.lookup(options.keys, options.partition)
    rows = [("KEY", "TIER", "PARTITION", "FILE GROUP", "SHARD", "ORDERING")]
    for at in locations:
        ordering = "-" if at["ordering"] is None else str(at["ordering"])
        if at["ordering_exact"] is False:
            ordering = f">= {ordering}"
        partition = "-" if at["partition_path"] is None else at["partition_path"] or "(none)"
        if at["tier"] == "none" and at["ordering"] is not None:
            # A key without a row has an ordering value only if a delete left it.
            partition = "(deleted)"
        shard = "-" if at["shard"] is None else str(at["shard"])
        rows.append((at["key"], at["tier"], partition, at["file_id"] or "-", shard, ordering))
    Output(options.json).answer({"found": locations}, columns(rows))
    return 0


def _look_up_value(options: argparse.Namespace) -> int:
    use_arrow_alone()
    from tidemark.cli.value_lookup import rows_of_value
    from tidemark.config import load_config

    column, equals, value = (options.where or "").partition("=")
    if options.where is not None and not (column and equals):
        raise CliError(f"--where {options.where}: write COLUMN=VALUE", WRONG_USE)
    if options.where is None:
        column, value = options.where_null, None
    output = Output(options.json)
    limit, token = options.limit or _ROWS_DEFAULT, options.page_token or ""
    document = rows_of_value(load_config(options.config), options.config, column, value, token, limit)
    rows = [("KEY", "PARTITION", "FILE GROUP")]
    for row in document["found"]:
        partition = "-" if row["partition_path"] is None else row["partition_path"] or "(none)"
        rows.append((row["key"], partition, row["file_id"] or "-"))
    output.answer(document, columns(rows))
    if document["next_page_token"]:
        output.say(f"there may be more: --page-token {document['next_page_token']}")
    return 0


def _look_up_file(options: argparse.Namespace) -> int:
    from tidemark.console.admin_client import connect
    from tidemark.stream_runtime.clock import SystemClock

    clock, output = SystemClock(), Output(options.json)
    count = rows = 0
    with _batches(options.file, options.column) as batches, connect(options.config) as client:
        started_s = told_s = clock.monotonic_s()
        written = _JsonAnswer(output) if options.json else _CsvAnswer(output)
        for answer in client.lookup_stream(batches, options.partition):
            written.add(answer)
            count, rows = count + len(answer), rows + len(answer) - answer["file_id"].null_count
            now_s = clock.monotonic_s()
            if now_s - told_s >= _SAY_EVERY_S:
                told_s = now_s
                output.say(f"{count} keys, {_rate(count, now_s - started_s)}")
        written.end(count, rows)
        took_s = clock.monotonic_s() - started_s
    output.say(f"{count} keys, {rows} with a row, in {took_s:.1f} s ({_rate(count, took_s)})")
    return 0


def _rate(count: int, seconds: float) -> str:
    return f"{count / max(seconds, 1e-3):.0f} keys/s"


class _CsvAnswer:
    """Lines of CSV as the answers come, after a line with the names of the columns."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._is_first = True

    def add(self, answer: pa.RecordBatch) -> None:
        self._write(answer, header=self._is_first)
        self._is_first = False

    def end(self, keys: int, rows: int) -> None:
        """Writes the names of the columns if there was no key."""
        if self._is_first:
            from tidemark.console.key_stream import COLUMNS

            self._write(COLUMNS.empty_table(), header=True)

    def _write(self, answer: Any, header: bool) -> None:
        import pyarrow as pa
        from pyarrow import csv

        sink = pa.BufferOutputStream()
        csv.write_csv(answer, sink, csv.WriteOptions(include_header=header))
        self._output.piece(sink.getvalue().to_pybytes().decode())


class _JsonAnswer:
    """One document, written piece by piece: `found` with an object for each key, then the counts."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._before = '{"found": ['

    def add(self, answer: pa.RecordBatch) -> None:
        from tidemark.stream_runtime.logging import one_line_json

        self._output.piece(self._before + one_line_json(answer.to_pylist())[1:-1])
        self._before = ", "

    def end(self, keys: int, rows: int) -> None:
        """Writes the rest of the document."""
        begin = self._before if keys == 0 else ""
        self._output.piece(f'{begin}], "keys": {keys}, "rows": {rows}}}\n')


# ------------------------------------------------------------ files of keys


def _is_parquet(name: str | None) -> bool:
    return name is not None and name.endswith((".parquet", ".pq"))


@contextmanager
def _batches(name: str, column: str | None) -> Iterator[Iterator[pa.StringArray]]:
    """The file's keys in batches that a stream takes; the file is closed at the end. Raises CliError, also
    while batches are taken: for a line or row that is no key, with its number.
    """
    if name == "-":
        yield text_batches(sys.stdin.buffer, "stdin")
        return
    if not name:
        raise CliError("--file names no file", WRONG_USE)
    if not Path(name).is_file():
        raise CliError(f"{name} is not a file", WRONG_USE)
    if _is_parquet(name):
        yield parquet_batches(name, column)
        return
    with Path(name).open("rb") as file:
        yield text_batches(file, name)


def text_batches(file: BinaryIO, name: str) -> Iterator[pa.StringArray]:
    """Batches of the lines. Raises CliError for a line that is no key."""
    import pyarrow as pa

    from tidemark.console.key_stream import BATCH_BYTES, BATCH_KEYS

    keys: list[str] = []
    size = number = 0
    while line := file.readline(_KEY_BYTES_MAX + len(_MARK) + len(b"\r\n") + 1):
        number += 1
        if number == 1 and not (line := line.removeprefix(_MARK)):
            break
        key = line.removesuffix(b"\n").removesuffix(b"\r")
        if keys and (len(keys) == BATCH_KEYS or size + len(key) > BATCH_BYTES):
            yield pa.array(keys, pa.string())
            keys, size = [], 0
        keys.append(_key_of(key, name, number))
        size += len(key)
    if keys:
        yield pa.array(keys, pa.string())


def _key_of(key: bytes, name: str, number: int) -> str:
    where = f"{name}, line {number}"
    if not key:
        raise _bad(where, "is empty, and a record key is not")
    if len(key) > _KEY_BYTES_MAX:
        raise _bad(where, f"is longer than {_KEY_BYTES_MAX} bytes, which no record key is")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise _bad(where, f"is not UTF-8 ({error.reason} at byte {error.start})") from None


def _bad(where: str, why: str) -> CliError:
    return CliError(f"{where} {why}", WRONG_USE)


def parquet_batches(name: str, column: str | None) -> Iterator[pa.StringArray]:
    """Batches of the column's values. Raises CliError for a file, column or value that cannot be taken."""
    import pyarrow as pa
    from pyarrow import parquet

    from tidemark.console.key_stream import BATCH_BYTES, BATCH_KEYS

    try:
        with parquet.ParquetFile(name) as file:
            chosen = _column(file.schema_arrow, name, column)
            row = 0
            for batch in file.iter_batches(BATCH_KEYS, columns=[chosen]):
                keys = batch.column(0).cast(pa.string())
                _check_column(keys, name, row)
                row += len(keys)
                yield from _bounded(keys, BATCH_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise CliError(f"{name} cannot be read as Parquet: {error}", WRONG_USE) from error


def _column(schema: pa.Schema, name: str, column: str | None) -> str:
    """The name of the column with the keys."""
    import pyarrow as pa

    def is_text(of: pa.DataType) -> bool:
        of = of.value_type if pa.types.is_dictionary(of) else of
        return bool(pa.types.is_string(of) or pa.types.is_large_string(of))

    texts: Sequence[str] = [field.name for field in schema if is_text(field.type)]
    if column is None:
        column = _RECORD_KEY if _RECORD_KEY in texts else texts[0] if len(texts) == 1 else None
    if column is not None and column in texts:
        return column
    there = ", ".join(texts) or "none"
    asked = "name one with --column" if column is None else f"{column} is none of them"
    raise CliError(f"{name}: {asked} (columns of text: {there})", WRONG_USE)


def _check_column(keys: pa.StringArray, name: str, first: int) -> None:
    """Raises CliError for the first value that is no record key. `first`: number of the first row, from 0."""
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.binary_length(keys), 0).to_numpy()
    bad = ((lengths == 0) | (lengths > _KEY_BYTES_MAX)).nonzero()[0]
    if bad.size:
        why = "is null or empty" if lengths[bad[0]] == 0 else f"is longer than {_KEY_BYTES_MAX} bytes"
        raise _bad(f"{name}, row {first + int(bad[0]) + 1}", f"{why}, which no record key is")


def _bounded(keys: pa.StringArray, bytes_max: int) -> Iterator[pa.StringArray]:
    """The keys in parts of at most so many bytes: halves of halves."""
    import pyarrow.compute as pc

    if len(keys) > 1 and (pc.sum(pc.binary_length(keys)).as_py() or 0) > bytes_max:
        half = len(keys) // 2
        yield from _bounded(keys.slice(0, half), bytes_max)
        yield from _bounded(keys.slice(half), bytes_max)
    elif len(keys):
        yield keys
