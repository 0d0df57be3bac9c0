"""Where lanes begin (`input.start`): resolved once, and recorded in the table's folder.

If each claim resolved it anew, a lane that has no counting transaction yet would begin with what there is at
that moment. Example for `latest`: records that arrived since the first claim would be passed over. For
`earliest`: records 0 to 999 wait while a schema registry is down, retention deletes the first 500, and the
next owner would begin at 500 without a word. With the record it asks for 0, and the lane stops as one whose
input was deleted.

Each of both has a file of its own: who changes `input.start` before anything is read gets what he asks for.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
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
from tidemark.stream_runtime.kafka.ports import Admin, KafkaError, TopicPartition

INPUT_STARTS: Final = join_path(ROOT, "input-starts.json")
INPUT_EARLIEST: Final = join_path(ROOT, "input-earliest.json")
_RECORDED_AT: Final = {InputStart.LATEST: INPUT_STARTS, InputStart.EARLIEST: INPUT_EARLIEST}
_ASK_S: Final = 3.0
_ASK_AGAIN_LOOKS: Final = 20
_log = logging.getLogger("tidemark.coordinator")


class DamagedStartsError(CoordinatorError):
    """The record of the first positions cannot be read; the text says what to do."""

    kind = ErrorKind.CORRUPT


class SilentLanes:
    """Lanes of `earliest` whose partition did not answer when it was asked for its start. Each is asked again
    after `_ASK_AGAIN_LOOKS` looks, behind those that were not asked since: however many do not answer, each
    lane has its turn.
    """

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}
        self._looks = 0

    def look(self) -> None:
        """Another look at the topics begins."""
        self._looks += 1

    def due(self, lanes: Iterable[str]) -> list[str]:
        """Those that may be asked now, the one that waits longest first."""
        asked = {lane: self._asked.get(lane, -_ASK_AGAIN_LOOKS) for lane in lanes}
        due = [lane for lane, look in asked.items() if self._looks - look >= _ASK_AGAIN_LOOKS]
        return sorted(due, key=asked.__getitem__)

    def note(self, lane: str, error: KafkaError) -> None:
        """The lane's partition did not answer."""
        # One warning for each lane: its partition may be without a leader for days.
        level = logging.DEBUG if lane in self._asked else logging.WARNING
        _log.log(level, "where %s starts is not known yet, and is asked again later: %s", lane, error)
        self._asked[lane] = self._looks


def record_input_starts(
    start: InputStart,
    term: Term,
    admin: Admin,
    lanes: Sequence[str],
    fresh: frozenset[str] = frozenset(),
    silent: SilentLanes | None = None,
) -> Mapping[str, int]:
    """Records where new lanes begin; returns input lane (``topic:partition``) -> first offset.

    New are the lanes that the record lacks, because the ledger begins or the topic is new in the
    configuration. With `input.start: latest` they begin at the partition's end now, except the ``fresh``
    ones: partitions that a topic got while it was read. Those begin at their start, because all their records
    came later than the table, and so do all new lanes with `earliest`. A lane of `earliest` whose partition
    does not answer is noted in ``silent``, and only those that are due there are asked for: nothing waits for
    it, because its owner asks Kafka itself.

    Raises DamagedStartsError, FencedOutError, KafkaError.
    """
    known = _read(term.storage, start)
    missing = [lane for lane in lanes if lane not in known]
    if start is InputStart.LATEST:
        begun = {lane: _start(admin, lane) for lane in missing if lane in fresh}
        begun |= input_ends(admin, [lane for lane in missing if lane not in fresh])
    else:
        begun = _answered(admin, missing, silent or SilentLanes())
    if not begun:
        return known
    merged = {**known, **begun}
    term.replace(_RECORDED_AT[start], json.dumps(merged, sort_keys=True, indent=2).encode())
    return merged


def _answered(admin: Admin, lanes: Iterable[str], silent: SilentLanes) -> dict[str, int]:
    starts: dict[str, int] = {}
    for lane in silent.due(lanes):
        try:
            starts[lane] = admin.start_offset(_partition(lane), _ASK_S)
        except KafkaError as error:
            silent.note(lane, error)
            # One that has no leader takes seconds, in which whoever accepts a topic or flushes waits. The
            # others have their turn at the next call.
            break
    return starts


def _start(admin: Admin, lane: str) -> int:
    return admin.start_offset(_partition(lane))


def _partition(lane: str) -> TopicPartition:
    return TopicPartition(*parse_shuffle_lane(lane))


def _read(storage: Storage, start: InputStart) -> dict[str, int]:
    try:
        return read_document(storage, _RECORDED_AT[start], dict[str, int])
    except FileMissingError:
        return {}
    except CorruptFileError as error:
        at = "end" if start is InputStart.LATEST else "start"
        raise DamagedStartsError(
            f"{error}. It says where each input lane began (input.start: {start.value}); lanes that have no "
            "counting transaction yet need it: restore it from a copy of the table's folder; or delete it, "
            f"then those lanes begin at the {at} that they have at the next start"
        ) from error
