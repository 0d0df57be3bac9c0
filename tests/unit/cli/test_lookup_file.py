"""`tidemark lookup --file`: which files of keys are taken, and what is printed."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.cli.commands.lookup import parquet_batches
from tidemark.cli.main import main
from tidemark.cli.text_lines import text_batches
from tidemark.console.errors import CliError
from tidemark.console.key_stream import BATCH_BYTES, BATCH_KEYS, COLUMNS, answered


def stream(batches: Iterable[pa.StringArray], partition: str | None) -> Iterator[pa.RecordBatch]:
    """Keys of an even length have a row, in a partition of the asked one's name if there is one."""
    path = 'd="x",1' if partition is None else partition
    for keys in batches:
        has_row = [len(key) % 2 == 0 for key in keys.to_pylist()]
        yield answered(
            keys,
            pb.LookupStreamResponse(
                epoch=3,
                instant="2026",
                tiers=["none", "run"],
                locations=[pb.LookupStreamResponse.Location(partition_path=path, file_id="f")],
                tier=map(int, has_row),
                location=map(int, has_row),
                shard=[1] * len(keys),
            ),
        )


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    client = SimpleNamespace(lookup_stream=stream)
    monkeypatch.setattr("tidemark.console.admin_client.connect", lambda config: nullcontext(client))


def look_up(*arguments: str) -> int:
    return main(["lookup", "-c", "x.yaml", *arguments])


def test_csv_has_a_line_for_each_key_in_the_order_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "keys.txt").write_bytes('aa\nb,"\r\nüüü\naa'.encode())
    assert look_up("--file", str(tmp_path / "keys.txt")) == 0
    printed = capsys.readouterr()
    names, *rows = csv.reader(io.StringIO(printed.out))
    assert names == COLUMNS.names
    assert [row[:4] for row in rows] == [
        ["aa", "run", 'd="x",1', "f"],
        ['b,"', "none", "", ""],
        ["üüü", "none", "", ""],
        ["aa", "run", 'd="x",1', "f"],
    ]
    assert printed.err.startswith("4 keys, 2 with a row, in ")


def test_all_keys_of_a_file_are_looked_up_in_the_partition_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "keys.txt").write_text("aa\nbb\n")
    assert look_up("--file", str(tmp_path / "keys.txt"), "--partition", "us/ca") == 0
    _, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert [row[:3] for row in rows] == [["aa", "run", "us/ca"], ["bb", "run", "us/ca"]]


def test_json_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = 2 * BATCH_KEYS + 1
    (tmp_path / "keys.txt").write_text("".join(f"key-{number}\n" for number in range(count)))
    assert look_up("--file", str(tmp_path / "keys.txt"), "--json") == 0
    [line] = capsys.readouterr().out.splitlines()
    document = json.loads(line)
    assert (document["keys"], document["rows"]) == (
        count,
        sum(at["tier"] == "run" for at in document["found"]),
    )
    assert [at["key"] for at in document["found"]] == [f"key-{number}" for number in range(count)]
    assert document["found"][0].keys() == set(COLUMNS.names)
    assert (document["found"][0]["epoch"], document["found"][1]["file_id"]) == (3, None)


@pytest.mark.parametrize("json_", [True, False])
def test_a_file_without_keys_has_an_empty_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], json_: bool
) -> None:
    (tmp_path / "keys.txt").write_bytes(b"")
    assert look_up("--file", str(tmp_path / "keys.txt"), *(["--json"] if json_ else [])) == 0
    printed = capsys.readouterr().out
    if json_:
        assert json.loads(printed) == {"found": [], "keys": 0, "rows": 0}
    else:
        assert next(csv.reader([printed])) == COLUMNS.names


def test_stdin_is_a_file_of_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"aa\nb\n")))
    assert look_up("--file", "-") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a\n\nb\n", "line 2 is empty"),
        (b"a\nb\n\xff\xfe\n", "line 3 is not UTF-8"),
        (b"a\n" + b"x" * 32_768 + b"\nb\n", "line 2 is longer than 32767 bytes"),
        (b"x" * 100_000, "line 1 is longer than 32767 bytes"),
    ],
)
def test_a_line_that_is_no_key_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str
) -> None:
    (tmp_path / "keys.txt").write_bytes(content)
    assert look_up("--file", str(tmp_path / "keys.txt")) == 2
    assert said in capsys.readouterr().err


def test_the_longest_key_fits_with_either_end_of_line() -> None:
    for end in (b"\n", b"\r\n", b""):
        [keys] = text_batches(io.BytesIO(b"x" * 32_767 + end), "f")
        assert len(keys[0].as_py()) == 32_767


@pytest.mark.parametrize("content", [b"aa\nb\n", b"aa\r\nb", "aa\n\ufeffb\n".encode()])
def test_a_byte_order_mark_is_no_part_of_the_first_key(content: bytes) -> None:
    marked = list(text_batches(io.BytesIO(codecs.BOM_UTF8 + content), "f"))
    assert marked == list(text_batches(io.BytesIO(content), "f"))
    assert marked[0][0].as_py() == "aa"


def test_the_longest_key_fits_behind_a_byte_order_mark() -> None:
    longest = codecs.BOM_UTF8 + b"x" * 32_767
    for end in (b"\r\nb", b""):
        [keys] = text_batches(io.BytesIO(longest + end), "f")
        assert len(keys[0].as_py()) == 32_767
    with pytest.raises(CliError, match="line 1 is longer than"):
        list(text_batches(io.BytesIO(longest + b"x\r\n"), "f"))


def test_a_file_with_a_mark_alone_has_no_key() -> None:
    assert list(text_batches(io.BytesIO(codecs.BOM_UTF8), "f")) == []


def test_batches_are_bounded_in_keys_and_bytes(tmp_path: Path) -> None:
    lines = [f"{number:08}" * (500 if number % 5 == 0 else 1) for number in range(3 * BATCH_KEYS // 2)]
    batches = list(text_batches(io.BytesIO("\n".join(lines).encode()), "f"))
    assert [key for batch in batches for key in batch.to_pylist()] == lines
    pq.write_table(pa.table({"id": lines}), tmp_path / "f.parquet")
    of_parquet = list(parquet_batches(str(tmp_path / "f.parquet"), None))
    assert [key for batch in of_parquet for key in batch.to_pylist()] == lines
    for batch in [*batches, *of_parquet]:
        assert len(batch) <= BATCH_KEYS
        assert sum(map(len, batch.to_pylist())) <= BATCH_BYTES


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ({"n": [1, 2], "id": ["aa", "b"]}, None),
        ({"other": ["x", "y"], "_hoodie_record_key": ["aa", "b"]}, None),
        ({"other": ["x", "y"], "id": ["aa", "b"]}, "id"),
        ({"id": pa.array(["aa", "b"]).dictionary_encode()}, None),
        ({"id": pa.array(["aa", "b"], pa.large_string())}, None),
    ],
)
def test_a_parquet_files_column_of_keys(tmp_path: Path, table: dict[str, object], column: str | None):
    pq.write_table(pa.table(table), tmp_path / "f.parquet")
    [keys] = parquet_batches(str(tmp_path / "f.parquet"), column)
    assert keys.to_pylist() == ["aa", "b"]


@pytest.mark.parametrize(
    ("table", "column", "said"),
    [
        ({"n": [1]}, None, "columns of text: none"),
        ({"a": ["x"], "b": ["y"]}, None, "name one with --column .columns of text: a, b"),
        ({"a": ["x"]}, "n", "n is none of them"),
        ({"a": ["x", "y", None]}, None, "row 3 is null or empty"),
        ({"a": ["x", ""]}, None, "row 2 is null or empty"),
        ({"a": ["x" * 40_000]}, None, "row 1 is longer"),
    ],
)
def test_a_parquet_file_that_cannot_be_taken_says_why(
    tmp_path: Path, table: dict[str, object], column: str | None, said: str
) -> None:
    pq.write_table(pa.table(table), tmp_path / "f.parquet")
    with pytest.raises(CliError, match=said) as failed:
        list(parquet_batches(str(tmp_path / "f.parquet"), column))
    assert failed.value.exit_code == 2


def test_a_file_that_is_no_parquet_file_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "f.parquet").write_bytes(b"no such thing")
    assert look_up("--file", str(tmp_path / "f.parquet")) == 2
    assert "cannot be read as Parquet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "one of the arguments KEY --file --where --where-file --where-null is required"),
        (("k", "--file", "f"), "not allowed with argument"),
        (("--file", "nowhere.txt"), "nowhere.txt is not a file"),
        (("--file", ""), "--file names no file"),
        (("--file", "keys.txt", "--column", "id"), "--column names a column of a Parquet file"),
    ],
)
def test_wrong_use_is_told(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    assert look_up(*arguments) == 2
    assert said in capsys.readouterr().err
