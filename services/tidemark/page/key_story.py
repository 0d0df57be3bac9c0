"""Collects everything that is known about one key: the tier that knows it, its file group, and every version
in the group's files.

Files are read on threads of their own, for at most `AT_ONCE_MAX` keys at a time and `TIMEOUT_S` seconds each.
So a request never holds the coordinator's loop up, and requests beyond that are refused, not queued.
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
"""From Hudi instants to the epochs that they committed, as far as the coordinator remembers them."""


class StoryBusyError(StreamRuntimeError):
    """`AT_ONCE_MAX` keys are being read already."""

    kind = ErrorKind.RETRYABLE


@dataclass(frozen=True)
class _Slices:
    """The file group of a key: the slice that readers read, and those before it, newest first."""

    current: FileSlice
    earlier: Sequence[FileSlice]


class KeyStories:
    """Reads the stories of keys. Thread-safe. `key_bytes_max`: longer keys cannot be in the table."""

    def __init__(
        self,
        lookup: Callable[[list[str], str | None], Iterable[Found]],
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
        """Refuses further requests."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    def story(self, key: str, partition: str | None = None) -> dict[str, Any]:
        """The document of a key, with a partitioned record index of the key in this partition; then it has no
        shard. An error while its files are read becomes `files_error` in the document. Raises StoryBusyError,
        DeadlineExceededError, and what the look-up raises.
        """
        return self._read(lambda deadline: self._tell(key, partition, deadline))

    def some_key(self, partition_path: str, file_id: str) -> str | None:
        """Some key of a file group, as an example; None for an empty group. Raises StoryBusyError,
        DeadlineExceededError, HudiFormatError, OSError.
        """

        def read(deadline: Deadline) -> str | None:
            view = TableView.load(self._storage)
            slices = self._slices(partition_path, file_id, view)
            reader = self._reader(view.timeline, deadline)
            return None if slices is None else reader.some_key(slices.current)

        return self._read(read)

    def _read(self, work: Callable[[Deadline], T]) -> T:
        """Runs `work` on a reading thread. Raises StoryBusyError when all of them are busy,
        DeadlineExceededError when it does not end in time.
        """
        if not self._room.acquire(blocking=False):
            raise StoryBusyError(f"{AT_ONCE_MAX} keys are being looked up already: try again in a moment")
        future = self._readers.submit(work, Deadline(self._clock, TIMEOUT_S))
        # The place is freed when the work has ended, not when the request has timed out: a storage that hangs
        # would otherwise collect threads.
        future.add_done_callback(lambda _: self._room.release())
        try:
            return future.result(TIMEOUT_S + 1.0)
        except FutureTimeoutError as error:
            future.cancel()
            raise DeadlineExceededError(
                f"the files of this key were not read within {TIMEOUT_S:g} s: is the storage slow?"
            ) from error

    def _tell(self, key: str, partition: str | None, deadline: Deadline) -> dict[str, Any]:
        location = next(iter(self._lookup([key], partition)), None)
        document: dict[str, Any] = {
            "key": key,
            "tier": location.tier if location is not None else "none",
            "partition_path": location.partition_path if location is not None else "",
            "file_id": location.file_id if location is not None else "",
            "shard": location.shard if location is not None and partition is None else None,
            "found": location is not None and location.tier != "none",
            "deleted": location is not None and location.tier == "none" and location.has_ordering,
            "versions": [],
        }
        if location is None or not (document["found"] or document["deleted"]):
            return document
        try:
            document |= self._files(location, deadline) if document["found"] else self._tombstone(location)
        except (HudiFormatError, OSError, DeadlineExceededError) as error:
            document["files_error"] = str(error)
        return document

    def _tombstone(self, location: Found) -> dict[str, Any]:
        """The ordering value of the delete of an absent key: older events do not bring the key back."""
        _, ordering = table_ordering(self._config, self._schema(TableView.load(self._storage).timeline))
        return {
            "ordering_field": ordering.name if ordering is not None else None,
            "ordering": _shown_ordering(ordering, location),
        }

    def _files(self, location: Found, deadline: Deadline) -> dict[str, Any]:
        """The versions in the key's files. If the cleaner deletes a file meanwhile, the files are listed and
        read once more.
        """
        try:
            return self._read_files(location, deadline)
        except FileMissingError:
            return self._read_files(location, deadline)

    def _read_files(self, location: Found, deadline: Deadline) -> dict[str, Any]:
        view = TableView.load(self._storage)
        timeline = view.timeline
        slices = self._slices(location.partition_path, location.file_id, view)
        if slices is None:
            return {"slice": None}
        reader = self._reader(timeline, deadline)
        ordering = reader.ordering
        read = reader.versions(slices.current, location.key)
        earlier, all_read = _earlier(reader, slices.earlier, location.key, read.versions)
        known = self._known_epochs(timeline, [*read.versions, *earlier])
        winner = read.winner
        return {
            "ordering_field": ordering.name if ordering is not None else None,
            "ordering": _shown_ordering(ordering, location),
            "slice": {
                "base_instant": slices.current.base_instant,
                "base_file": slices.current.base_file,
                "log_files": len(slices.current.log_files),
                "earlier_slices": len(slices.earlier),
                "earlier_all_read": all_read,
            },
            "versions": [
                *(_version(version, "earlier", known, False) for version in earlier),
                *(
                    _version(version, "current", known, number == winner)
                    for number, version in enumerate(read.versions)
                ),
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
        earlier = [former for former in history if former.base_instant < current[0].base_instant]
        return _Slices(current[0], earlier[::-1])

    def _schema(self, timeline: Timeline) -> TableSchema:
        """The table's schema, from the newest commit that has it. Raises UnsupportedTableError when none of
        the newest `_COMMITS_READ_MAX` commits has it.
        """
        writes = [instant for instant in timeline.completed() if instant.action.is_write]
        newest = sorted(writes, key=lambda instant: str(instant.completion), reverse=True)
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
        """Epoch and completion time by Hudi instant. The epoch is the one that the coordinator remembers,
        else that in the commit's metadata, which is read for the newest `_COMMITS_READ_MAX` instants.
        """
        instants = frozenset(map(_written_by, versions))
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
        """The epoch in a commit's metadata; None for a commit of another engine, and for one that was
        archived.
        """
        commit = timeline.find(instant)
        if commit is None or not commit.is_completed or not commit.action.is_write:
            return None
        path = instant_path(commit)
        text = decode_commit_metadata(self._storage.read(path), path).extra_metadata.get("tidemark.epoch")
        return int(text) if text is not None and text.isdecimal() else None


def _earlier(
    reader: KeyReader, slices: Sequence[FileSlice], key: str, current: Sequence[KeyVersion]
) -> tuple[list[KeyVersion], bool]:
    """The versions that only former slices have, oldest first, and whether all former slices were read. A
    slice that cannot be read, because its files were cleaned away, ends the search.
    """
    versions: list[KeyVersion] = []
    complete = len(slices) <= EARLIER_SLICES_MAX
    for file_slice in slices[:EARLIER_SLICES_MAX]:
        try:
            versions = [*reader.versions(file_slice, key).versions, *versions]
        except (HudiFormatError, OSError, DeadlineExceededError):
            complete = False
            break
    # Every compaction and every rewritten base file repeats unchanged rows, with their sequence numbers.
    seen = {version.row[COMMIT_SEQNO] for version in current if version.row is not None}
    distinct: list[KeyVersion] = []
    for version in reversed(versions):
        number = version.row[COMMIT_SEQNO] if version.row is not None else None
        if number is None or number not in seen:
            seen.add(number)
            distinct.append(version)
    return distinct[::-1], complete


def _written_by(version: KeyVersion) -> str:
    """The instant that wrote this version. A compacted base file keeps it in each row; a delete has that of
    its log file.
    """
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


def _shown_ordering(ordering: OrderingField | None, location: Found) -> Any:
    if ordering is None or not location.has_ordering:
        return None
    return plain(ordering.from_int64(np.array([location.ordering], np.int64))[0].as_py())
