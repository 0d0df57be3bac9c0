"""An archive file says which actions its rows have, and who asks for one reads the end of the file alone."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from testing.counted_storage import CountedStorage, Counts
from tidemark.hudi_format.timeline.archive_actions import ACTIONS_KEY, TAIL_BYTES, read_actions
from tidemark.hudi_format.timeline.archive_files import ArchivedInstant, ArchiveFile, KeptArchive
from tidemark.hudi_format.timeline.archive_rows import encode_archive_file

EVERY = ("clean", "commit", "deltacommit", "indexing", "replacecommit", "restore", "rollback")


def archive_file(actions: tuple[str, ...], count: int = 60) -> bytes:
    """A file with row groups of twenty rows."""
    times = [f"2026010100{number:07d}" for number in range(count)]
    rows = [
        ArchivedInstant(time, time, actions[number % len(actions)], bytes(110_000), b"")
        for number, time in enumerate(times)
    ]
    return encode_archive_file(rows)


def may_have(folder: Path, content: bytes, action: str) -> tuple[bool, int]:
    """The answer, and how many bytes were read for it."""
    (folder / "file").write_bytes(content)
    storage = CountedStorage(folder)
    storage.counts = Counts()
    return KeptArchive().may_have(storage, "", ArchiveFile("file"), action), storage.counts.bytes_read


def with_footer(content: bytes, pairs: dict[str, str]) -> bytes:
    """The rows as another writer would write them."""
    table, sink = pq.read_table(io.BytesIO(content)), io.BytesIO()
    with pq.ParquetWriter(sink, table.schema.remove_metadata(), compression="none") as writer:
        writer.write_table(table.replace_schema_metadata(), row_group_size=20)
        writer.add_key_value_metadata(pairs)
    return sink.getvalue()


@pytest.mark.parametrize("actions", [("clean", "deltacommit"), ("replacecommit",), ("rollback", "commit")])
def test_the_end_of_a_file_says_its_actions(tmp_path: Path, actions: tuple[str, ...]) -> None:
    content = archive_file(actions)
    assert pq.ParquetFile(io.BytesIO(content)).num_row_groups == 3
    for action in EVERY:
        assert may_have(tmp_path, content, action) == (action in actions, min(TAIL_BYTES, len(content)))


def test_it_says_more_than_statistics() -> None:
    """By those a file with a clean and a rollback may have a replacecommit."""
    assert read_actions(pa.BufferReader(archive_file(("clean", "rollback")))) == frozenset(
        {"clean", "rollback"}
    )


def test_a_file_that_does_not_say_them_is_asked_by_its_statistics(tmp_path: Path) -> None:
    content = with_footer(archive_file(("clean", "deltacommit")), {"writer.model.name": "avro"})
    assert read_actions(pa.BufferReader(content)) is None
    assert may_have(tmp_path, content, "deltacommit")[0]
    assert may_have(tmp_path, content, "commit")[0], "between clean and deltacommit"
    assert not may_have(tmp_path, content, "replacecommit")[0]


def test_nothing_is_said_of_words_that_are_no_actions(tmp_path: Path) -> None:
    for words in [("clean", "x,replacecommit"), ("clean", ""), tuple(f"action{'x' * n}" for n in range(30))]:
        content = archive_file(words)
        assert ACTIONS_KEY.encode() not in content
        assert all(may_have(tmp_path, content, word)[0] for word in words if word)


def test_damage_of_what_is_said_is_found(tmp_path: Path) -> None:
    """Each byte of the pair: the statistics answer then."""
    content = archive_file(("clean", "replacecommit"))
    begin = content.rindex(ACTIONS_KEY.encode())
    end = content.index(b"\x00", begin)
    said = frozenset({"clean", "replacecommit"})
    for at in range(begin, end):
        damaged = bytearray(content)
        damaged[at] ^= 0x01
        assert read_actions(pa.BufferReader(bytes(damaged))) in (None, said), at
    assert read_actions(pa.BufferReader(content[:-1])) is None
    assert read_actions(pa.BufferReader(b"")) is None


def test_contents_of_rows_say_nothing(tmp_path: Path) -> None:
    """Here they are the end of another archive file, and lie in the last bytes of theirs."""
    inner = archive_file(("replacecommit",), 1)[-900:]
    content = encode_archive_file([ArchivedInstant("20260101000000000", "2", "commit", inner, b"")])
    assert read_actions(pa.BufferReader(content)) == frozenset({"commit"})
    foreign = with_footer(content, {})
    assert ACTIONS_KEY.encode() in foreign[-TAIL_BYTES:]
    assert read_actions(pa.BufferReader(foreign)) is None
    assert not may_have(tmp_path, foreign, "replacecommit")[0]
