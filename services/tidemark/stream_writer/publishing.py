"""Prepares the files of an attempt, and takes a file that an earlier run of the task made visible.

It does not matter which run of a task made a file, because names and contents follow from the epoch alone.
Whether a prepared file is visible at once depends on the storage. The coordinator publishes those that are
not (`hudi_format/publication/port.py`).
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

import pyarrow.parquet as pq

from tidemark.hudi_format.commit.markers import Marker, create_marker_list
from tidemark.hudi_format.errors import AlreadyExistsError, CorruptFileError, TimelineConflictError
from tidemark.hudi_format.log_file import read_blocks
from tidemark.hudi_format.publication.port import Attempt
from tidemark.hudi_format.publication.tickets import Ticket

_THREADS: Final = 8
_WAITING_MAX: Final = 16
Asked = ParamSpec("Asked")
Given = TypeVar("Given")


class Publishers:
    """Prepares files on several threads while the task makes the next ones. Most of the time of a small file
    is a wait for the disk, and a journaling file system commits files that wait at the same time together.
    One for each task, used by one thread.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS)
        self._waiting: deque[Future[Any]] = deque()

    def __enter__(self) -> Publishers:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Waits for the calls that have begun. After an error it cancels those that have not."""
        self._pool.shutdown(cancel_futures=error is not None)

    def submit(
        self, publish: Callable[Asked, Given], *asked: Asked.args, **named: Asked.kwargs
    ) -> Future[Given]:
        """Calls `publish` on a thread. Waits first while too many calls are open, which bounds the memory for
        their files. May raise the error of an earlier call.
        """
        if len(self._waiting) >= _WAITING_MAX:
            self._waiting.popleft().result()
        begun = self._pool.submit(publish, *asked, **named)
        self._waiting.append(begun)
        return begun


def publish_markers(by: Attempt, instant: str, number: int, announced: Sequence[Marker]) -> None:
    """Publishes the markers of all data files that the task will make for one data partition (``number``).

    Raises FencedOutError, and CorruptFileError if an earlier run of the task published markers of other
    files.
    """
    try:
        create_marker_list(by, instant, number, announced)
    except TimelineConflictError as error:
        raise CorruptFileError(str(error)) from error


def prepare_file(by: Attempt, path: str, data: bytes) -> Ticket:
    """Prepares the file, or takes the one that an earlier run made visible. The ticket has its size.

    Raises CorruptFileError if that file has another content than this run would have written.
    """
    try:
        return by.prepare(path, data)
    except AlreadyExistsError:
        former = by.storage.read(path)
        if _shape(path, former) != _shape(path, data):
            raise CorruptFileError(
                f"{path} was published before with other content ({len(former)} bytes, now {len(data)})"
            ) from None
        return Ticket(path, len(former))


def _shape(path: str, data: bytes) -> object:
    """What must be equal in the files of two runs. The bytes may differ, since two versions of a library may
    write the same rows differently.
    """
    if path.endswith(".parquet"):
        metadata = pq.read_metadata(io.BytesIO(data))
        return metadata.num_rows, metadata.num_columns
    return [(block.block_type, len(block.content)) for block in read_blocks(data, path)]
