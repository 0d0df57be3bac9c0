"""Everything that is known of one key: which tier knows it, where it lives, and every version in its files.

Files are read on threads of their own, few at a time and each within a limit: a question never holds the
coordinator's loop up, and many questions at once are refused, not queued without end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from tidemark.errors import ErrorKind
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import FileMissingError, HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import COMMIT_SEQNO, COMMIT_TIME
from tidemark.hudi_format.file_group.key_versions import KeyReader, KeyVersion
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import OrderingField, table_ordering
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Timeline
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, decode_commit_metadata
from tidemark.page.plain_values import plain, user_columns
from tidemark.page.sources import Found
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError, StreamRuntimeError
from tidemark.stream_runtime.retry import Deadline
from tidemark.table_status.epochs import EpochRecord

AT_ONCE_MAX: Final = 2
TIMEOUT_S: Final = 10.0
EARLIER_SLICES_MAX: Final = 8
_LOG_BYTES_MAX: Final = 64 << 20
_COMMITS_READ_MAX: Final = 32

T = TypeVar("T")
EpochsOfInstants = Callable[[frozenset[str]], Mapping[str, EpochRecord]]
"""Hudi instants -> the epochs that they committed, as far as they are remembered."""


class StoryBusyError(StreamRuntimeError):
    """As many questions as are answered at a time are being answered."""

    kind = ErrorKind.RETRYABLE


@dataclass(frozen=True)
class _Slices:
    """The file group of a key: the slice that readers read, and those before it, newest first."""

    current: FileSlice
    earlier: Sequence[FileSlice]


class KeyStories:
    """Thread-safe. `key_bytes_max`: longer keys cannot be in the table."""

    def __init__(
        self,
        lookup: Callable[[list[str]], Iterable[Found]],
        storage: Storage,
        config: TableConfig,
        epochs: EpochsOfInstants,
        clock: Clock,
        key_bytes_max: int,
    ) -> None:
        self._lookup = lookup
        self._storage = storage
        self._config = config
        self._epochs = epochs
        self._clock = clock
        self.key_bytes_max = key_bytes_max
        self._room = threading.BoundedSemaphore(AT_ONCE_MAX)
        self._readers = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="web-story")

    def close(self) -> None:
        """Takes no more questions."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def story(self, key: str) -> dict[str, Any]:
        """The document. Raises StoryBusyError, DeadlineExceededError, and what the look-up raises."""
        return self._read(lambda deadline: self._tell(key, deadline))

    def some_key(self, partition_path: str, file_id: str) -> str | None:
        """A key of a file group, for who knows none. Raises as `story`, HudiFormatError and OSError too."""

        def read(deadline: Deadline) -> str | None:
            view = TableView.load(self._storage)
            slices = self._slices(partition_path, file_id, view)
            reader = self._reader(view.timeline, deadline)
            return None if slices is None else reader.some_key(slices.current)

        return self._read(read)

    def _read(self, work: Callable[[Deadline], T]) -> T:
        """Has it done on a reading thread; refuses when all are busy."""
        if not self._room.acquire(blocking=False):
            raise StoryBusyError(f"{AT_ONCE_MAX} keys are being looked up already: try again in a moment")
        future = self._readers.submit(work, Deadline(self._clock, TIMEOUT_S))
        # Freed when the work has ended, not when the asker has given up: storage may hang.
        future.add_done_callback(lambda _: self._room.release())
        try:
            return future.result(TIMEOUT_S + 1.0)
        except FutureTimeoutError as error:
            future.cancel()
            raise DeadlineExceededError(
                f"the files of this key were not read within {TIMEOUT_S:g} s: is the storage slow?"
            ) from error

    def _tell(self, key: str, deadline: Deadline) -> dict[str, Any]:
        found = next(iter(self._lookup([key])), None)
        document: dict[str, Any] = {
            "key": key,
            "tier": found.tier if found is not None else "none",
            "partition_path": found.partition_path if found is not None else "",
            "file_id": found.file_id if found is not None else "",
            "shard": found.shard if found is not None else None,
            "found": found is not None and found.tier != "none",
            "deleted": found is not None and found.tier == "none" and found.has_ordering,
            "versions": [],
        }
        if found is None or not (document["found"] or document["deleted"]):
            return document
        try:
            document |= self._files(found, deadline) if document["found"] else self._tombstone(found)
        except (HudiFormatError, OSError, DeadlineExceededError) as error:
            document["files_error"] = str(error)
        return document

    def _tombstone(self, found: Found) -> dict[str, Any]:
        """The ordering value with which an absent key was deleted: older events do not bring it back."""
        _, ordering = table_ordering(self._config, self._schema(TableView.load(self._storage).timeline))
        return {
            "ordering_field": ordering.name if ordering is not None else None,
            "ordering": _shown_ordering(ordering, found),
        }

    def _files(self, found: Found, deadline: Deadline) -> dict[str, Any]:
        """What the files say; they may be cleaned away while they are read: then it is listed once more."""
        try:
            return self._read_files(found, deadline)
        except FileMissingError:
            return self._read_files(found, deadline)

    def _read_files(self, found: Found, deadline: Deadline) -> dict[str, Any]:
        view = TableView.load(self._storage)
        timeline = view.timeline
        slices = self._slices(found.partition_path, found.file_id, view)
        if slices is None:
            return {"slice": None}
        reader = self._reader(timeline, deadline)
        ordering = reader.ordering
        read = reader.versions(slices.current, found.key)
        earlier, all_read = _earlier(reader, slices.earlier, found.key, read.versions)
        known = self._known_epochs(timeline, [*read.versions, *earlier])
        winner = read.winner
        return {
            "ordering_field": ordering.name if ordering is not None else None,
            "ordering": _shown_ordering(ordering, found),
            "slice": {
                "base_instant": slices.current.base_instant,
                "base_file": slices.current.base_file,
                "log_files": len(slices.current.log_files),
                "earlier_slices": len(slices.earlier),
                "earlier_all_read": all_read,
            },
            "versions": [
                *(_version(each, "earlier", known, False) for each in earlier),
                *(_version(each, "current", known, at == winner) for at, each in enumerate(read.versions)),
            ],
            "merged": None if read.merged is None else user_columns(read.merged),
            "left_out": list(read.left_out),
        }

    def _reader(self, timeline: Timeline, deadline: Deadline) -> KeyReader:
        schema = self._schema(timeline)
        mode, ordering = table_ordering(self._config, schema)
        check = partial(deadline.check, "reading the key's files")
        return KeyReader(self._storage, schema, mode, ordering, _LOG_BYTES_MAX, check)

    def _slices(self, partition_path: str, file_id: str, view: TableView) -> _Slices | None:
        names = [
            info.name
            for info in self._storage.list(partition_path)
            if (parsed := parse_data_file(info.name)) is not None and parsed.file_id == file_id
        ]
        files = {partition_path: names}
        current = view.slices(files)
        if not current:
            return None
        history = view.every_slice(files)[partition_path, file_id]
        earlier = [each for each in history if each.base_instant < current[0].base_instant]
        return _Slices(current[0], earlier[::-1])

    def _schema(self, timeline: Timeline) -> TableSchema:
        """Of the newest commit that carries one."""
        writes = [each for each in timeline.completed() if each.action.is_write]
        newest = sorted(writes, key=lambda each: str(each.completion), reverse=True)
        for instant in newest[:_COMMITS_READ_MAX]:
            path = instant_path(instant)
            content = decode_commit_metadata(self._storage.read(path), path)
            if text := content.extra_metadata.get(SCHEMA_KEY):
                return TableSchema.from_avro(text, self._config.name)
        raise UnsupportedTableError(
            f"{self._storage.base_uri}: no recent commit carries the table's schema",
            "Ask again after the next commit",
        )

    def _known_epochs(self, timeline: Timeline, versions: Sequence[KeyVersion]) -> dict[str, dict[str, Any]]:
        """Per Hudi instant its epoch and when it was committed: remembered, else from the commit itself."""
        instants = frozenset(_written_by(each) for each in versions)
        remembered = self._epochs(instants)
        known: dict[str, dict[str, Any]] = {}
        for at, instant in enumerate(sorted(instants, reverse=True)):
            record = remembered.get(instant)
            epoch = record.epoch if record is not None else None
            if epoch is None and at < _COMMITS_READ_MAX:
                epoch = self._epoch_in_commit(timeline, instant)
            known[instant] = {"epoch": epoch, "completion": timeline.completion_time(instant)}
        return known

    def _epoch_in_commit(self, timeline: Timeline, instant: str) -> int | None:
        """None for a commit of another engine, and for one that was archived."""
        found = timeline.find(instant)
        if found is None or not found.is_completed or not found.action.is_write:
            return None
        path = instant_path(found)
        text = decode_commit_metadata(self._storage.read(path), path).extra_metadata.get("tidemark.epoch")
        return int(text) if text is not None and text.isdecimal() else None


def _earlier(
    reader: KeyReader, slices: Sequence[FileSlice], key: str, current: Sequence[KeyVersion]
) -> tuple[list[KeyVersion], bool]:
    """Versions that only former slices hold, oldest first, and whether all of those were read. Former files
    are there until they are cleaned away: what cannot be read is left out.
    """
    found: list[KeyVersion] = []
    complete = len(slices) <= EARLIER_SLICES_MAX
    for file_slice in slices[:EARLIER_SLICES_MAX]:
        try:
            found = [*reader.versions(file_slice, key).versions, *found]
        except (HudiFormatError, OSError, DeadlineExceededError):
            complete = False
            break
    # Every compaction and every rewritten base file repeats the rows that stayed as they were.
    seen = {each.row[COMMIT_SEQNO] for each in current if each.row is not None}
    distinct: list[KeyVersion] = []
    for each in reversed(found):
        number = each.row[COMMIT_SEQNO] if each.row is not None else None
        if number is None or number not in seen:
            seen.add(number)
            distinct.append(each)
    return distinct[::-1], complete


def _written_by(version: KeyVersion) -> str:
    """The instant that made this version: a compacted base file keeps that of each row."""
    return str(version.row[COMMIT_TIME]) if version.row is not None else version.instant


def _version(
    version: KeyVersion, slice_name: str, known: Mapping[str, Mapping[str, Any]], is_read: bool
) -> dict[str, Any]:
    instant = _written_by(version)
    return {
        "slice": slice_name,
        "kind": "base" if version.is_base else "log",
        "file": version.file,
        "instant": instant,
        **known.get(instant, {"epoch": None, "completion": None}),
        "deletes": version.deletes,
        "ordering": plain(version.ordering),
        "is_read": is_read,
        "row": None if version.row is None else user_columns(version.row),
    }


def _shown_ordering(ordering: OrderingField | None, found: Found) -> Any:
    if ordering is None or not found.has_ordering:
        return None
    return plain(ordering.from_int64(np.array([found.ordering], np.int64))[0].as_py())
