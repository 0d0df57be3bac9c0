"""What a rebuild made and where it stands, as JSON documents; equal values give equal bytes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Final

import msgspec

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.key_digest import EMPTY, Digest, added
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT

REBUILD_PATH: Final = join_path(ROOT, "index-rebuild.json")


class ShardFile(msgspec.Struct, frozen=True, tag=True):
    """A new base file of a shard: how many entries, the sum of their hashes modulo 2**64, bytes."""

    shard: int
    entries: int
    digest: int
    size: int
    ticket: Ticket


class RowsTally(msgspec.Struct, frozen=True, tag=True):
    """What one task made of rows: how many entries, and the sum of their hashes modulo 2**64."""

    entries: int
    digest: int


class Rebuild(msgspec.Struct, frozen=True):
    """A switch that began: it was written before the first file of the new index got its name.

    ``instant``: of the metadata table's commit that shows the new index. ``paths``: of all its base files.
    ``requested``: the content of the commit's plan, which is written behind it.
    """

    instant: str
    former: int
    shards: int
    paths: tuple[str, ...]
    requested: bytes


def encode(document: Rebuild | ShardFile | RowsTally) -> bytes:
    """The document's bytes."""
    return msgspec.json.encode(document, order="deterministic")


def whole_build(documents: Iterable[bytes], shards: int, tasks: int) -> list[ShardFile]:
    """The base files of an index with so many ``shards``, in their order, if they hold just the entries that
    the ``tasks`` over rows made. ``documents``: what all tasks reported.

    Raises CorruptFileError: an entry was lost or doubled between rows and files.
    """
    reports = [_decoded(data) for data in documents]
    files = sorted(
        (report for report in reports if isinstance(report, ShardFile)), key=lambda file: file.shard
    )
    tallies = [report for report in reports if isinstance(report, RowsTally)]
    if [file.shard for file in files] != list(range(shards)):
        raise CorruptFileError(f"the tasks wrote {len(files)} base files for {shards} shards")
    if len(tallies) != tasks:
        raise CorruptFileError(f"{len(tallies)} of {tasks} tasks told what they made of rows")
    check_written(files, _sum(tallies))
    return files


def check_written(files: Iterable[ShardFile], came: Digest) -> None:
    """Raises CorruptFileError if the base files do not hold just the entries of this digest."""
    written = _sum(files)
    if written != came:
        raise CorruptFileError(
            f"the new base files hold {written[0]} entries, of the rows came {came[0]}, and their sums differ"
        )


def _decoded(data: bytes) -> ShardFile | RowsTally:
    try:
        return msgspec.json.decode(data, type=ShardFile | RowsTally)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"what a task of the rebuild reported is not readable: {error}") from error


def _sum(parts: Iterable[ShardFile | RowsTally]) -> Digest:
    return reduce(added, ((part.entries, part.digest) for part in parts), EMPTY)


def begun_rebuild(storage: Storage) -> Rebuild | None:
    """The switch that began and whose end is not known; None when there is none. Raises CorruptFileError."""
    try:
        return msgspec.json.decode(storage.read(REBUILD_PATH), type=Rebuild)
    except FileMissingError:
        return None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFileError(
            f"{REBUILD_PATH} is not readable: {error}. It names the files of a rebuild of the record index "
            "that did not end"
        ) from error
