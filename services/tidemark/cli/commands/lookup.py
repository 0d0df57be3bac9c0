"""`tidemark lookup`: where keys live; a few keys as a table, a file of keys as CSV or JSON; the rows of some
values page by page, those of a file of values as CSV or JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tidemark.cli.text_lines import LINE_BYTES_MAX, VALUES, bad_line, opened, text_batches
from tidemark.console.arguments import Commands, add_command, whole_number
from tidemark.console.errors import WRONG_USE, CliError
from tidemark.console.output import Output, columns
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone

if TYPE_CHECKING:
    import pyarrow as pa

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
        "  tidemark lookup -c flights.yaml --where origin=EWR --where origin=JFK --limit 100\n"
        "  tidemark lookup -c flights.yaml --where-file tailnum=planes.txt > rows.csv\n\n"
        "With --where, a page of the rows that have a value, or one of several, in a column with a\n"
        "secondary index; with --where-file all rows of a file's values: from the coordinator, or from the\n"
        "table's files where none answers. docs/secondary-index.md has how values are written.",
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
        "--where",
        action="append",
        metavar="COLUMN=VALUE",
        help="the rows with this value in an indexed column; given again: those with one of the values",
    )
    asked.add_argument(
        "--where-file",
        metavar="COLUMN=F",
        help="all rows with one of the values in a file: text with one value a line (- is stdin); prints "
        "CSV, or with --json one document, while it reads",
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
    by_value = options.where or options.where_file is not None or options.where_null is not None
    if by_value and options.partition is not None:
        raise CliError("--partition is for KEY and --file: a value is looked up everywhere", WRONG_USE)
    if options.where or options.where_null is not None:
        return _look_up_values(options)
    if options.limit is not None or options.page_token is not None:
        raise CliError("--limit and --page-token are for --where and --where-null", WRONG_USE)
    if options.where_file is not None:
        return _look_up_value_file(options)
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


def _look_up_values(options: argparse.Namespace) -> int:
    use_arrow_alone()
    from tidemark.cli.value_lookup import answering, document
    from tidemark.config import load_config

    column, values = _asked(options)
    output = Output(options.json)
    limit, token = options.limit or _ROWS_DEFAULT, options.page_token or ""
    with answering(load_config(options.config), options.config) as ask:
        found = document(ask, column, values, token, limit)
    several = len(values) > 1
    rows = [("VALUE", "KEY", "PARTITION", "FILE GROUP")[not several :]]
    for row in found["found"]:
        partition = "-" if row["partition_path"] is None else row["partition_path"] or "(none)"
        of_value = (row["value"],) if several else ()
        rows.append((*of_value, row["key"], partition, row["file_id"] or "-"))
    output.answer(found, columns(rows))
    if found["next_page_token"]:
        output.say(f"there may be more: --page-token {found['next_page_token']}")
    return 0


def _asked(options: argparse.Namespace) -> tuple[str, list[str | None]]:
    """The column and the values, each once."""
    if not options.where:
        return options.where_null, [None]
    pairs = [_pair(text, "--where", "VALUE") for text in options.where]
    names = sorted({column for column, _ in pairs})
    if len(names) > 1:
        raise CliError(f"--where names several columns: {', '.join(names)}; ask for one at a time", WRONG_USE)
    return names[0], list(dict.fromkeys(value for _, value in pairs))


def _pair(text: str, option: str, second: str) -> tuple[str, str]:
    column, equals, rest = text.partition("=")
    if not (column and equals):
        raise CliError(f"{option} {text}: write COLUMN={second}", WRONG_USE)
    return column, rest


def _look_up_value_file(options: argparse.Namespace) -> int:
    use_arrow_alone()
    from tidemark.cli.value_lookup import COLUMNS, answering, answers
    from tidemark.config import load_config
    from tidemark.stream_runtime.clock import SystemClock

    column, name = _pair(options.where_file, "--where-file", "F")
    clock, output = SystemClock(), Output(options.json)
    started_s = told_s = clock.monotonic_s()
    written = _JsonAnswer(output) if options.json else _CsvAnswer(output, COLUMNS)
    asked = rows = 0

    def counted(batches: Iterator[pa.StringArray]) -> Iterator[pa.StringArray]:
        nonlocal asked
        for batch in batches:
            yield batch
            asked += len(batch)

    with (
        opened(name, "--where-file") as (file, called),
        answering(load_config(options.config), options.config) as ask,
    ):
        for answer in answers(ask, column, counted(text_batches(file, called, VALUES))):
            written.add(answer)
            rows += len(answer)
            now_s = clock.monotonic_s()
            if now_s - told_s >= _SAY_EVERY_S:
                told_s = now_s
                output.say(f"{asked} values done, {rows} rows")
    written.end(values=asked, rows=rows)
    output.say(f"{asked} values, {rows} rows, in {clock.monotonic_s() - started_s:.1f} s")
    return 0


def _look_up_file(options: argparse.Namespace) -> int:
    from tidemark.console.admin_client import connect
    from tidemark.console.key_stream import COLUMNS
    from tidemark.stream_runtime.clock import SystemClock

    clock, output = SystemClock(), Output(options.json)
    count = rows = 0
    with _batches(options.file, options.column) as batches, connect(options.config) as client:
        started_s = told_s = clock.monotonic_s()
        written = _JsonAnswer(output) if options.json else _CsvAnswer(output, COLUMNS)
        for answer in client.lookup_stream(batches, options.partition):
            written.add(answer)
            count, rows = count + len(answer), rows + len(answer) - answer["file_id"].null_count
            now_s = clock.monotonic_s()
            if now_s - told_s >= _SAY_EVERY_S:
                told_s = now_s
                output.say(f"{count} keys, {_rate(count, now_s - started_s)}")
        written.end(keys=count, rows=rows)
        took_s = clock.monotonic_s() - started_s
    output.say(f"{count} keys, {rows} with a row, in {took_s:.1f} s ({_rate(count, took_s)})")
    return 0


def _rate(count: int, seconds: float) -> str:
    return f"{count / max(seconds, 1e-3):.0f} keys/s"


class _CsvAnswer:
    """Lines of CSV as the answers come, after a line with the names of the columns."""

    def __init__(self, output: Output, schema: pa.Schema) -> None:
        self._output, self._schema = output, schema
        self._is_first = True

    def add(self, answer: pa.RecordBatch) -> None:
        self._write(answer, header=self._is_first)
        self._is_first = False

    def end(self, **_counts: int) -> None:
        """Writes the names of the columns if there was no answer."""
        if self._is_first:
            self._write(self._schema.empty_table(), header=True)

    def _write(self, answer: Any, header: bool) -> None:
        import pyarrow as pa
        from pyarrow import csv

        sink = pa.BufferOutputStream()
        csv.write_csv(answer, sink, csv.WriteOptions(include_header=header))
        self._output.piece(sink.getvalue().to_pybytes().decode())


class _JsonAnswer:
    """One document, written piece by piece: `found` with an object for each row, then the counts."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._before = '{"found": ['

    def add(self, answer: pa.RecordBatch) -> None:
        from tidemark.stream_runtime.logging import one_line_json

        if len(answer):
            self._output.piece(self._before + one_line_json(answer.to_pylist())[1:-1])
            self._before = ", "

    def end(self, **counts: int) -> None:
        """Writes the rest of the document."""
        begin = "" if self._before == ", " else self._before
        told = "".join(f', "{name}": {count}' for name, count in counts.items())
        self._output.piece(f"{begin}]{told}}}\n")


# ------------------------------------------------------------ files of keys


def _is_parquet(name: str | None) -> bool:
    return name is not None and name.endswith((".parquet", ".pq"))


@contextmanager
def _batches(name: str, column: str | None) -> Iterator[Iterator[pa.StringArray]]:
    """The file's keys in batches that a stream takes; the file is closed at the end. Raises CliError, also
    while batches are taken: for a line or row that is no key, with its number.
    """
    if _is_parquet(name):
        with opened(name, "--file"):
            yield parquet_batches(name, column)
        return
    with opened(name, "--file") as (file, called):
        yield text_batches(file, called)


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
    bad = ((lengths == 0) | (lengths > LINE_BYTES_MAX)).nonzero()[0]
    if bad.size:
        why = "is null or empty" if lengths[bad[0]] == 0 else f"is longer than {LINE_BYTES_MAX} bytes"
        raise bad_line(f"{name}, row {first + int(bad[0]) + 1}", f"{why}, which no record key is")


def _bounded(keys: pa.StringArray, bytes_max: int) -> Iterator[pa.StringArray]:
    """The keys in parts of at most so many bytes: halves of halves."""
    import pyarrow.compute as pc

    if len(keys) > 1 and (pc.sum(pc.binary_length(keys)).as_py() or 0) > bytes_max:
        half = len(keys) // 2
        yield from _bounded(keys.slice(0, half), bytes_max)
        yield from _bounded(keys.slice(half), bytes_max)
    elif len(keys):
        yield keys
