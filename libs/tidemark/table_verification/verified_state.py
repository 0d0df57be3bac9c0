"""The state that a run without differences stores for the next one: `.hoodie/.aux/tidemark/verified.json`.

It is in the table's folder, so every later run finds it, and it is copied or replaced together with the
table. It is no proof by itself: a file group's digest is used only while the group's slice has the same
files, by name and size, from which it was made. The file's first line is the SHA-256 of the rest. A file
whose content does not have that SHA-256 is ignored, and the run reads everything.

    as_of     completion time of the newest data instant that was verified
    rules     what the live keys depend on besides files: merge mode, ordering field, delete field, schema
    groups    [partition path, file id, fingerprint of the slice's files, keys, sum of hashes]
    shards    [base file or null, log files] of each shard
    commits   names of the completed files on both timelines, newest commit of ours
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.key_digest import Digest
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.storage.base import Storage
from tidemark.table_verification.digests import Digests
from tidemark.table_verification.seen_commits import OurCommit, SeenCommits

STATE_PATH: Final = ".hoodie/.aux/tidemark/verified.json"
_VERSION: Final = 1


@dataclass(frozen=True)
class VerifiedGroup:
    """The digest of a file group's live keys, and the fingerprint of the files from which it was made."""

    fingerprint: str
    digest: Digest


@dataclass(frozen=True)
class ShardFiles:
    """The files of a shard's slice."""

    base: str | None
    logs: tuple[str, ...]


@dataclass(frozen=True)
class VerifiedState:
    """The stored state. At its instant the index entries of each file group had the same digest as its
    rows.
    """

    as_of: str
    rules: str
    groups: Mapping[RecordLocation, VerifiedGroup]
    shards: tuple[ShardFiles, ...]
    commits: SeenCommits


def fingerprints(
    slices: Iterable[FileSlice], sizes: Mapping[str, Mapping[str, int]]
) -> dict[RecordLocation, str]:
    """File group -> a hash of the names and sizes of its slice's files.

    ``sizes``: partition path -> file name -> bytes.
    """
    prints: dict[RecordLocation, str] = {}
    for one in slices:
        names = ([one.base_file] if one.base_file else []) + list(one.log_files)
        text = "\n".join(f"{name} {sizes[one.partition_path][name]}" for name in names)
        location = RecordLocation(one.partition_path, one.file_id)
        prints[location] = hashlib.sha256(text.encode()).hexdigest()[:32]
    return prints


def verified_state(
    as_of: str,
    rules: str,
    prints: Mapping[RecordLocation, str],
    digests: Digests,
    shards: Sequence[FileSlice],
    commits: SeenCommits,
) -> VerifiedState:
    """The state after a run without differences; ``shards``: the record index's slices, by shard number."""
    return VerifiedState(
        as_of,
        rules,
        {location: VerifiedGroup(text, digests[location]) for location, text in prints.items()},
        tuple(ShardFiles(shard.base_file, shard.log_files) for shard in shards),
        commits,
    )


def store_state(storage: Storage, state: VerifiedState) -> None:
    """Replaces the stored state atomically. Raises OSError when the table's folder cannot be written."""
    body = json.dumps(_document(state), separators=(",", ":"), ensure_ascii=False).encode()
    storage.replace(STATE_PATH, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def load_state(storage: Storage) -> VerifiedState | None:
    """Reads the stored state; None when there is none, or it is damaged or of another version."""
    try:
        checksum, _, body = storage.read(STATE_PATH).partition(b"\n")
    except FileMissingError:
        return None
    if hashlib.sha256(body).hexdigest().encode() != checksum:
        return None
    document = json.loads(body)
    return _state(document) if document.get("version") == _VERSION else None


def _document(state: VerifiedState) -> dict[str, Any]:
    last = state.commits.last
    return {
        "version": _VERSION,
        "as_of": state.as_of,
        "rules": state.rules,
        "groups": [
            [at.partition_path, at.file_id, group.fingerprint, *group.digest]
            for at, group in sorted(state.groups.items())
        ],
        "shards": [[shard.base, list(shard.logs)] for shard in state.shards],
        "commits": {
            "data": sorted(state.commits.data),
            "metadata": sorted(state.commits.metadata),
            "last": None if last is None else [last.instant, last.epoch, last.ranges],
        },
    }


def _state(document: Mapping[str, Any]) -> VerifiedState:
    commits = document["commits"]
    last = commits["last"]
    return VerifiedState(
        document["as_of"],
        document["rules"],
        {
            RecordLocation(partition, file_id): VerifiedGroup(text, (keys, total))
            for partition, file_id, text, keys, total in document["groups"]
        },
        tuple(ShardFiles(base, tuple(logs)) for base, logs in document["shards"]),
        SeenCommits(
            frozenset(commits["data"]),
            frozenset(commits["metadata"]),
            None if last is None else OurCommit(last[0], last[1], _ranges(last[2])),
        ),
    )


def _ranges(document: Mapping[str, Any]) -> dict[str, dict[str, tuple[int, int]]]:
    return {
        key: {lane: (first, following) for lane, (first, following) in lanes.items()}
        for key, lanes in document.items()
    }
