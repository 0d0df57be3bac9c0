"""What a run that found nothing wrong leaves for the next: `.hoodie/.aux/tidemark/verified.json`.

It lies with the table, so that a table that is replaced or copied takes it along or loses it, and so that
whoever verifies next goes on from there. It is no proof by itself: a digest of a file group counts only while
the group's slice has the very files, by name and size, that the digest was made from. First line: SHA-256 of
the rest; a file that does not hold what that says is passed over, and everything is read.

    as_of     completion time of the newest data instant that was verified
    rules     what the live keys depend on besides files (merging, number of shards)
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
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.storage.base import Storage
from tidemark.table_verification.digests import Digest, Digests
from tidemark.table_verification.seen_commits import OurCommit, SeenCommits

STATE_PATH: Final = ".hoodie/.aux/tidemark/verified.json"
_VERSION: Final = 1


@dataclass(frozen=True)
class VerifiedGroup:
    """The live keys of a file group whose slice had these files."""

    fingerprint: str
    digest: Digest


@dataclass(frozen=True)
class ShardFiles:
    """The files of a shard's slice."""

    base: str | None
    logs: tuple[str, ...]


@dataclass(frozen=True)
class VerifiedState:
    """See the module. At its instant the index entries that name a file group had the group's digest, too."""

    as_of: str
    rules: str
    groups: Mapping[RecordLocation, VerifiedGroup]
    shards: tuple[ShardFiles, ...]
    commits: SeenCommits


def fingerprints(
    slices: Iterable[FileSlice], sizes: Mapping[str, Mapping[str, int]]
) -> dict[RecordLocation, str]:
    """Per file group a hash of the names and sizes of its slice's files."""
    found: dict[RecordLocation, str] = {}
    for each in slices:
        names = ([each.base_file] if each.base_file else []) + list(each.log_files)
        text = "\n".join(f"{name} {sizes[each.partition_path][name]}" for name in names)
        location = RecordLocation(each.partition_path, each.file_id)
        found[location] = hashlib.sha256(text.encode()).hexdigest()[:32]
    return found


def verified_state(
    as_of: str,
    rules: str,
    prints: Mapping[RecordLocation, str],
    digests: Digests,
    shards: Sequence[FileSlice],
    commits: SeenCommits,
) -> VerifiedState:
    """The state after a run that found nothing wrong; `shards`: the record index's slices, in order."""
    return VerifiedState(
        as_of,
        rules,
        {location: VerifiedGroup(text, digests[location]) for location, text in prints.items()},
        tuple(ShardFiles(each.base_file, each.log_files) for each in shards),
        commits,
    )


def store_state(storage: Storage, state: VerifiedState) -> None:
    """Puts it in place of the one before, in one step. Raises OSError where the table cannot be written."""
    body = json.dumps(_document(state), separators=(",", ":"), ensure_ascii=False).encode()
    storage.replace(STATE_PATH, hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


def load_state(storage: Storage) -> VerifiedState | None:
    """The state, None when there is none or it is not what was stored."""
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
            [at.partition_path, at.file_id, each.fingerprint, *each.digest]
            for at, each in sorted(state.groups.items())
        ],
        "shards": [[each.base, list(each.logs)] for each in state.shards],
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
