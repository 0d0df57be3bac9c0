"""The RocksDB folder of one assigner process: opening, batched reads, atomic writes, recovery from damage.

The folder is a cache: a damaged one is moved aside and filled anew. A failed read raises an error, and is
never reported as a missing key.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias, TypeVar, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
)

from tidemark.index_assigner.index.errors import CacheCorruptError, CacheDiskError, CacheInUseError
from tidemark.index_assigner.index.rocks_layout import IDENTITY_KEY, LAYOUT_VERSION
from tidemark.index_assigner.runs.files import remove_copies

_log = logging.getLogger("tidemark.assigner")
_T = TypeVar("_T")
# In raw mode rocksdict returns only bytes; its type stubs have more types.
_Keys: TypeAlias = Iterator[bytes]
_Items: TypeAlias = Iterator[tuple[bytes, bytes]]
Put: TypeAlias = tuple[list[bytes], list[bytes]]
"""Keys and their values, as `RocksTier.write` takes them."""
Puts: TypeAlias = list[Put]
_MEMORY_MIN: Final = 8 << 20
_WRITE_BUFFER_SHARE: Final = 8
_WRITE_BUFFERS: Final = 2
_BLOOM_BITS: Final = 10
_BLOCK_BYTES: Final = 16 << 10
_OPEN_FILES_MAX: Final = 256
RUNS_FOLDER: Final = "runs"
_DAMAGED_MARK: Final = "TIDEMARK_DAMAGED"
# The folder's size is measured again after so many bytes were written.
_MEASURE_EVERY: Final = 4 << 20


class RocksTier:
    """An open RocksDB folder, for one thread. A `write` is atomic, and survives the killing
    of the process.
    """

    def __init__(self, path: Path, identity: str, memory_bytes: int) -> None:
        """Opens the folder, or makes it (mode 0700).

        ``identity``: names the table and its number of shards; content with another identity is deleted.
        ``memory_bytes``: limit of block cache, write buffers and one batch together. Raises CacheInUseError
        when another process has the folder, CacheDiskError when the disk is full.
        """
        self.path = path
        self.when_full: Callable[[], None] = lambda: None
        """Called when the disk has refused a write: makes room, for the next process at least."""
        self._identity = f"{LAYOUT_VERSION}\0{identity}".encode()
        self._memory = max(memory_bytes, _MEMORY_MIN)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(_lock_file(path))
        try:
            self._db = self._open_or_rebuild()
        except BaseException:
            os.close(self._lock)
            raise
        self._measured = 0
        self._written = _MEASURE_EVERY

    def _open_or_rebuild(self) -> Rdict:
        if (self.path / _DAMAGED_MARK).exists():
            self._move_aside("reading it failed in an earlier run")
        try:
            return self._open_with_room()
        except CacheDiskError:
            raise
        except Exception as error:  # rocksdict raises nothing more specific
            self._move_aside(str(error))
        return self._open_with_room()

    def _open_with_room(self) -> Rdict:
        """Opens it. On a full disk run files leave until that is possible, since nobody else would make room:
        first one that may vanish, then two more, then four.

        Raises CacheDiskError when none is left.
        """
        leaving = 1
        while True:
            try:
                return self._open()
            except Exception as error:
                disk_error = _disk_error(self.path, error)
                if disk_error is None:
                    raise
                if not (left := remove_copies(self.path / RUNS_FOLDER, leaving)):
                    raise disk_error from error
                _log.warning("%s: RocksDB cannot open, %d run files leave: %s", self.path, left, error)
            leaving *= 2

    def _open(self) -> Rdict:
        self.path.mkdir(mode=0o700, exist_ok=True)
        self.path.chmod(0o700)
        database = self._database()
        with _closed_on_error(database):
            stored = database.get(IDENTITY_KEY)
        if stored is not None and stored != self._identity:
            database.close()
            _log.warning("%s holds the cache of another table or layout: it is emptied", self.path)
            shutil.rmtree(self.path)
            self.path.mkdir(mode=0o700)
            database = self._database()
        with _closed_on_error(database):
            database.put(IDENTITY_KEY, self._identity)
        return database

    def _database(self) -> Rdict:
        options = self._options()
        # Without column_families rocksdict opens an existing database with its stored options, without our
        # cache.
        return Rdict(str(self.path), options, column_families={"default": options})

    def _options(self) -> Options:
        table = BlockBasedOptions()
        table.set_block_cache(Cache(self._memory - (_WRITE_BUFFERS + 1) * self.batch_bytes))
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_bloom_filter(_BLOOM_BITS, False)
        table.set_block_size(_BLOCK_BYTES)
        table.set_format_version(5)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_size(self.batch_bytes)
        options.set_max_write_buffer_number(_WRITE_BUFFERS)
        options.set_max_total_wal_size(self._memory // 4)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_max_open_files(_OPEN_FILES_MAX)
        options.set_max_background_jobs(2)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        # Each flush and compaction appends to the manifest, which counts as the cache's disk. Default: 1 GiB.
        options.set_max_manifest_file_size(1 << 20)
        return options

    def _move_aside(self, reason: str) -> None:
        aside = _freed(self.path.with_name(self.path.name + ".damaged"))
        self.path.rename(aside)
        # Run files are of use only beside the records of their shards.
        shutil.rmtree(aside / RUNS_FOLDER, ignore_errors=True)
        _log.error("cache folder %s is damaged (%s): moved to %s, filled anew", self.path, reason, aside)

    def close(self) -> None:
        """Closes the database and unlocks the folder. May be repeated."""
        if self._lock >= 0:
            self._db.close()
            os.close(self._lock)
            self._lock = -1

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The value of each key, None where there is none."""
        if not keys:
            return []
        asked = cast(list[str | int | float | bytes | bool], keys)
        return self._guarded(lambda: cast(list[bytes | None], self._db.get(asked)))

    def get(self, key: bytes) -> bytes | None:
        """The value of one key, None where there is none."""
        return self.get_many([key])[0]

    def keys_between(self, first: bytes, end: bytes) -> list[bytes]:
        """All keys in [first, end), ascending."""
        until = _until(end)
        return self._guarded(lambda: list(cast(_Keys, self._db.keys(from_key=first, read_opt=until))))

    def items_between(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """All keys in [first, end) with their values."""
        return self._guarded(lambda: list(self.items_from(first, end)))

    def items_from(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yields the items of [first, end) in ascending order as they are now, without reading all of them
        first.

        Any thread may read them. RocksDB cannot be closed before they are given back.
        """
        until = _until(end)
        return _items_until(cast(_Items, self._db.items(from_key=first, read_opt=until)), until)

    def write(
        self,
        puts: Iterable[Put],
        deletes: Iterable[bytes] = (),
        drop_ranges: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Writes one atomic batch: drops ranges, then deletes keys, then puts (keys, values), which may be
        made one by one meanwhile.

        Raises CacheDiskError, CacheCorruptError.
        """
        batch = WriteBatch(raw_mode=True)
        for first, end in drop_ranges:
            batch.delete_range(first, end)
        for key in deletes:
            batch.delete(key)
        for put in puts:
            _add(batch, put)
        self._write(batch)

    def write_in_parts(
        self,
        puts: Iterable[Put],
        record: Iterable[Put],
        record_keys: Iterable[bytes],
        deletes: Iterable[bytes] = (),
    ) -> None:
        """Writes the puts and ``record``, which is about them: in one batch if they fit into one
        (`batch_bytes`, and one put), else in several, of which the last has the record. It is taken after
        the puts.

        The first of several deletes ``record_keys``: killed between two of them, the record is not there.
        ``deletes`` are carried out before the record. Raises as `write`.
        """
        batch, is_whole = WriteBatch(raw_mode=True), True
        for put in puts:
            _add(batch, put)
            if batch.size_in_bytes() < self.batch_bytes:
                continue
            for key in record_keys if is_whole else ():
                batch.delete(key)
            self._write(batch)
            batch, is_whole = WriteBatch(raw_mode=True), False
        for key in deletes:
            batch.delete(key)
        for put in record:
            _add(batch, put)
        self._write(batch)

    @property
    def batch_bytes(self) -> int:
        """Puts with fewer bytes fit into one batch. A batch of this size fills a write buffer. A larger one
        would make a larger buffer.
        """
        return self._memory // _WRITE_BUFFER_SHARE

    def _write(self, batch: WriteBatch) -> None:
        self._written += batch.size_in_bytes()
        try:
            self._guarded(lambda: self._db.write(batch))
        except CacheDiskError:
            self.when_full()
            raise

    def sync(self) -> None:
        """Makes all writes so far durable: a loss of power takes none of them back."""
        self._guarded(lambda: self._db.flush_wal(True))

    def clear(self, first: bytes, end: bytes) -> None:
        """Drops all keys in [first, end); writes nothing when there are none."""
        if self._guarded(lambda: next(self.items_from(first, end), None)) is not None:
            self.write([], [], [(first, end)])

    def reclaim(self, first: bytes, end: bytes) -> None:
        """Compacts a dropped range, which frees its disk space."""
        self._guarded(lambda: self._db.compact_range(first, end))
        self._written = _MEASURE_EVERY

    def disk_bytes(self) -> int:
        """Size of the folder in bytes: as measured last, plus the bytes written since. Measured every 4
        MiB.
        """
        if self._written >= _MEASURE_EVERY:
            with os.scandir(self.path) as entries:
                self._measured = sum(_size(entry) for entry in entries)
            self._written = 0
        return self._measured + self._written

    def entries(self) -> int:
        """The number of entries, by RocksDB's own estimate."""
        return self._guarded(lambda: self._db.property_int_value("rocksdb.estimate-num-keys")) or 0

    def _guarded(self, operation: Callable[[], _T]) -> _T:
        """Runs the operation. Raises CacheDiskError when the disk is full; CacheCorruptError when RocksDB
        reports damage, and marks the folder so that the next start rebuilds it.
        """
        try:
            return operation()
        except Exception as error:  # rocksdict raises nothing more specific
            if disk_error := _disk_error(self.path, error):
                raise disk_error from error
            if "orruption" not in str(error) and "No such file" not in str(error):
                raise
            raise self.damaged(str(error)) from error

    def damaged(self, why: str) -> CacheCorruptError:
        """Marks the folder, so that the next start rebuilds it; returns the error for the caller to raise."""
        # A full disk refuses the mark. Then the next start finds the damage anew.
        with contextlib.suppress(OSError):
            (self.path / _DAMAGED_MARK).touch()
        return CacheCorruptError(
            f"cache folder {self.path}: {why}; start again: it is rebuilt from the metadata table"
        )


@contextlib.contextmanager
def _closed_on_error(database: Rdict) -> Iterator[None]:
    """Errors keep their frames, and RocksDB cannot be opened again while there is the one of before."""
    try:
        yield
    except BaseException:
        database.close()
        raise


def _disk_error(path: Path, error: Exception) -> CacheDiskError | None:
    """The error for a disk that is full; None for other errors. The folder is not damaged then, so it is
    kept.
    """
    text = str(error)
    if "No space left" not in text and "Writer has previous error" not in text:
        return None
    return CacheDiskError(
        f"cache folder {path} (state.path) cannot be written: {text}. Free space there; nothing is lost, and "
        "the assigner goes on when it is started again"
    )


def _freed(folder: Path) -> Path:
    """This folder's name, or one with a number where something in the folder cannot be deleted."""
    for number in count():
        freed = folder.with_name(f"{folder.name}-{number}") if number else folder
        shutil.rmtree(freed, ignore_errors=True)
        if not freed.exists():
            return freed
    raise AssertionError("numbers do not end")


def _add(batch: WriteBatch, put: Put) -> None:
    for _ in map(batch.put, *put):
        pass


def _until(end: bytes) -> ReadOptions:
    options = ReadOptions()
    options.set_iterate_upper_bound(end)
    return options


def _items_until(items: _Items, until: ReadOptions) -> _Items:
    """The items; ``until`` is held as long as they are, because RocksDB reads the bound where the options
    have it.
    """
    yield from items
    del until


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0  # a file that a compaction replaced meanwhile


def check_not_in_use(path: Path) -> None:
    """Raises CacheInUseError when another process has the folder, OSError. Creates no file."""
    lock = _lock_file(path)
    if lock.exists():
        os.close(_locked(lock))


def _lock_file(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _locked(path: Path) -> int:
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise CacheInUseError(
            f"{path} is locked: another process uses this cache folder; "
            "give each assigner a `state.path` or slot of its own"
        ) from error
    return handle
