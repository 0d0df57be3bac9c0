"""Where lanes begin with `input.start: latest`: resolved once, and recorded in the table's folder.

If each claim resolved it anew, a lane that has no counting transaction yet would begin at the end of that
moment. Records that arrived since the first claim would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.input.ends import input_ends
from tidemark.config import InputStart
from tidemark.epoch_protocol.lanes import parse_shuffle_lane
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_document
from tidemark.stream_runtime.kafka.ports import Admin, TopicPartition

INPUT_STARTS: Final = join_path(ROOT, "input-starts.json")


class DamagedStartsError(CoordinatorError):
    """The record of the first positions cannot be read; the text says what to do."""

    kind = ErrorKind.CORRUPT


def record_input_starts(
    start: InputStart,
    term: Term,
    admin: Admin,
    lanes: Sequence[str],
    fresh: frozenset[str] = frozenset(),
) -> Mapping[str, int]:
    """Records where new lanes begin; returns input lane (``topic:partition``) -> first offset.

    Empty with `input.start: earliest`. Lanes that the record lacks, because the ledger begins or the topic is
    new in the configuration, begin at the partition's end now. The ``fresh`` lanes are partitions that a
    topic got while it was read. They begin at their start, because all their records came later than the
    table. Raises DamagedStartsError, FencedOutError, KafkaError.
    """
    if start is not InputStart.LATEST:
        return {}
    known = _read(term.storage)
    missing = [lane for lane in lanes if lane not in known]
    if not missing:
        return known
    begun = {lane: _start(admin, lane) for lane in missing if lane in fresh}
    ended = input_ends(admin, [lane for lane in missing if lane not in fresh])
    merged = {**known, **begun, **ended}
    content = json.dumps(merged, sort_keys=True, indent=2).encode()
    term.replace(INPUT_STARTS, content)
    return merged


def _start(admin: Admin, lane: str) -> int:
    return admin.start_offset(TopicPartition(*parse_shuffle_lane(lane)))


def _read(storage: Storage) -> dict[str, int]:
    try:
        return read_document(storage, INPUT_STARTS, dict[str, int])
    except FileMissingError:
        return {}
    except CorruptFileError as error:
        raise DamagedStartsError(
            f"{error}. It says where each input lane began (input.start: latest), and lanes that have no "
            "counting transaction yet need it: restore it from a copy of the table's folder; or delete it, "
            "then those lanes begin at the end that they have at the next start"
        ) from error
