"""What a rebuild made and where it stands, as JSON documents; equal values give equal bytes."""

from __future__ import annotations

from typing import Final

import msgspec

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT

REBUILD_PATH: Final = join_path(ROOT, "index-rebuild.json")


class ShardFile(msgspec.Struct, frozen=True):
    """A new base file of a shard: how many entries, the sum of their hashes modulo 2**64, bytes."""

    shard: int
    entries: int
    digest: int
    size: int
    ticket: Ticket


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


def encode(document: Rebuild | ShardFile) -> bytes:
    """The document's bytes."""
    return msgspec.json.encode(document, order="deterministic")


def decode_shard_file(data: bytes) -> ShardFile:
    """A task's report. Raises CorruptFileError."""
    try:
        return msgspec.json.decode(data, type=ShardFile)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"what a task of the rebuild reported is not readable: {error}") from error


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
