"""A reader of the table's files with its own rules: what is committed, and what rows and index entries there
are.

Rules (format notes, table part 2.4 and 4.2, index part 5): the data timeline is listed first, the metadata
table after it. A metadata deltacommit counts when it is completed itself and its instant is completed in that
data listing, or older than the listing's first write, or is bootstrap. A file counts when its instant is
completed in the data listing, or older than the first write. Of a file group the newest base file by
requested time holds, with the log files that completed at or after that time, in the order of completion; of
archived instants the history says when they completed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import is_
from typing import Any, Final, NamedTuple, TypeVar

from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.model import Row

DATA_TIMELINE: Final = ".hoodie/timeline"
METADATA_TIMELINE: Final = ".hoodie/metadata/.hoodie/timeline"
_HISTORY: Final = f"{DATA_TIMELINE}/history"
_INDEX_FOLDER: Final = ".hoodie/metadata/record_index"
_FILES_FOLDER: Final = ".hoodie/metadata/files"
_BOOTSTRAP: Final = "00000000000000"
_INSTANT: Final = re.compile(r"^(\d{17})(?:_(\d{17}))?\.(\w+)(?:\.(\w+))?$")
_BASE: Final = re.compile(r"^([0-9a-zA-Z-]+)_([0-9-]+)_(\d+)\.(parquet|hfile)$")
_LOG: Final = re.compile(r"^\.([0-9a-zA-Z-]+)_(\d+)\.log\.(\d+)_([0-9-]+)$")
_WRITES: Final = frozenset({"commit", "deltacommit", "replacecommit", "compaction", "clustering"})
Place = tuple[str, str]
_T = TypeVar("_T")
_NOTHING: Final[dict[str, str]] = {}


class BrokenTableError(Exception):
    """What a reader trips over: a key twice, a file that is not there."""


@dataclass(frozen=True)
class Timeline:
    """``completed``: requested -> completion time of writes; ``pending``: of everything; ``others``:
    completed rollbacks and the like.
    """

    completed: dict[str, str]
    pending: frozenset[str]
    others: dict[str, str]
    compactions: frozenset[str] = frozenset()

    @cached_property
    def first(self) -> str | None:
        """The first write instant in whatever state."""
        return min([*self.completed, *self.pending], default=None)

    def counts(self, instant: str) -> bool:
        """Whether files of the instant are committed."""
        if instant in self.completed:
            return True
        first = self.first
        return instant not in self.pending and first is not None and instant < first


class DataFile(NamedTuple):
    """A base file (version 0) or a log file of the table or of its metadata table."""

    path: str
    file_id: str
    instant: str
    is_log: bool


class View(NamedTuple):
    """What a reader that looks now works with. Equal views hold equal rows. ``completions``: requested and
    completion time of what is on the data timeline, or archived.
    """

    completions: tuple[tuple[str, str], ...]
    data: tuple[DataFile, ...]
    shards: tuple[DataFile, ...]
    listing: tuple[DataFile, ...]


class Content(NamedTuple):
    """Live rows by key, where each lives, and where the index says that it lives."""

    rows: dict[str, Row]
    places: dict[str, Place]
    indexed: dict[str, Place]


@lru_cache(maxsize=1024)
def _parts_of(name: str) -> tuple[str, str | None, str] | None:
    """Requested time, completion time and first word of a timeline file's name."""
    match = _INSTANT.match(name)
    return (match[1], match[2], match[3]) if match is not None else None


def parse_timeline(names: Iterable[str]) -> Timeline:
    """From the names in a timeline folder."""
    completed: dict[str, str] = {}
    others: dict[str, str] = {}
    started: set[str] = set()
    compactions: set[str] = set()
    for name in names:
        parts = _parts_of(name)
        if parts is None:
            continue
        requested, completion, word = parts
        if completion is not None:
            (completed if word in _WRITES else others)[requested] = completion
        elif word in _WRITES or word == "inflight":
            started.add(requested)
        if word == "compaction":
            compactions.add(requested)
    return Timeline(completed, frozenset(started - completed.keys()), others, frozenset(compactions))


def parse_file(path: str) -> DataFile | None:
    """What a path stands for; None for what is no data file."""
    name = path.rpartition("/")[2]
    if match := _BASE.match(name):
        return DataFile(path, match[1], match[3], False)
    if match := _LOG.match(name):
        return DataFile(path, match[1], match[2], True)
    return None


class Reader:
    """``names(folder)`` lists the files of a folder, ``read(path)`` gives a file's bytes, ``folders()`` the
    table's partitions.
    """

    def __init__(
        self,
        names: Callable[[str], list[str]],
        read: Callable[[str], bytes],
        folders: Callable[[], list[str]],
        ordered: bool,
    ) -> None:
        self._names, self._read, self._folders, self._ordered = names, read, folders, ordered
        self._parsed: dict[tuple[str, int], Any] = {}
        self._made: dict[tuple[str, str], tuple[tuple[object, ...], Any]] = {}
        self._schema = ""
        # Instants that another engine rolled back while they were written: what appears of them later is
        # nobody's commit, also where the timeline starts after it and a reader would take it for archived.
        self.rolled_back: frozenset[str] = frozenset()

    def _once(self, what: str, where: str, made_of: tuple[object, ...], make: Callable[[], _T]) -> _T:
        """``make()``, or what it gave last time if that was made of the very same objects."""
        known = self._made.get((what, where))
        if known is not None and len(known[0]) == len(made_of) and all(map(is_, known[0], made_of)):
            found: _T = known[1]
            return found
        made = make()
        self._made[what, where] = (made_of, made)
        return made

    def _listed(self, folder: str) -> tuple[str, ...]:
        """The names in a folder, as the same object until they are others."""
        names = tuple(self._names(folder))
        known = self._made.get(("names", folder))
        if known is not None and known[1] == names:
            return tuple(known[1])
        self._made["names", folder] = ((), names)
        return names

    def data_timeline(self) -> Timeline:
        return self._timeline(DATA_TIMELINE)

    def metadata_timeline(self) -> Timeline:
        return self._timeline(METADATA_TIMELINE)

    def _timeline(self, folder: str) -> Timeline:
        names = self._listed(folder)
        return self._once("timeline", folder, (names,), lambda: parse_timeline(names))

    def files(self, folder: str) -> tuple[DataFile, ...]:
        """All data files in a folder, whatever they count."""
        names, prefix = self._listed(folder), f"{folder}/" if folder else ""

        def parsed() -> tuple[DataFile, ...]:
            found = (parse_file(f"{prefix}{name}") for name in names)
            return tuple(each for each in found if each is not None)

        return self._once("files", folder, (names,), parsed)

    def view(self, data: Timeline) -> View:
        """What a reader sees that has listed the data timeline as given, and everything else now."""
        metadata, rolled_back = self.metadata_timeline(), self.rolled_back

        def valid(file: DataFile) -> bool:
            if file.instant.startswith(_BOOTSTRAP) or not file.is_log:
                # Base files are compactions', which are no instants of the data table.
                return metadata.counts(file.instant)
            return metadata.counts(file.instant) and data.counts(file.instant)

        def shown(file: DataFile) -> bool:
            return data.counts(file.instant) and (
                file.instant not in rolled_back or file.instant in data.completed
            )

        def kept(folder: str, keep: Callable[[DataFile], bool]) -> tuple[DataFile, ...]:
            files = self.files(folder)
            on = (files, data, metadata, rolled_back)
            return self._once("kept", folder, on, lambda: tuple(filter(keep, files)))

        archived = self._archived()
        completions = self._once(
            "completions",
            "",
            (archived, data),
            lambda: tuple(sorted({**archived, **data.completed}.items())),
        )
        groups = [kept(folder, shown) for folder in self._folders()]
        index, listing = kept(_INDEX_FOLDER, valid), kept(_FILES_FOLDER, valid)
        return self._once(
            "view",
            "",
            (completions, index, listing, *groups),
            lambda: View(completions, tuple(file for group in groups for file in group), index, listing),
        )

    def _archived(self) -> dict[str, str]:
        """When archived instants completed. A write that was requested before a compaction, and completed
        after it, lies above its base file for ever, although it may be older than all of the timeline.
        """
        if "_version_" not in self._listed(_HISTORY):
            return _NOTHING
        manifest = self._read(f"{_HISTORY}/manifest_{self._read(f'{_HISTORY}/_version_').decode()}")
        files = self._once("history", "", (manifest,), lambda: json.loads(manifest)["files"])
        paths = [f"{_HISTORY}/{file['fileName']}" for file in files]

        def times() -> dict[str, str]:
            return dict(pair for path in paths for pair in self._cached(path, _archived_times))

        return self._once("archived", "", tuple(map(self._read, paths)), times)

    def content(self, view: View) -> Content:
        """Rows and index of a view. Raises BrokenTableError."""
        return self._once("content", "", (view,), lambda: self._content(view))

    def _content(self, view: View) -> Content:
        rows, places = self._rows(view)
        return Content(rows, places, self._index(view))

    def listing(self, view: View) -> dict[str, set[str]]:
        """Partition path -> file names, as the `files` partition of the metadata table has them."""
        found: dict[str, set[str]] = {}
        for file in _in_order(dict(view.completions), view.listing):
            for kind, value in self._entries(file):
                if kind is None or value is None or kind == "__all_partitions__":
                    continue
                for name, (_, is_deleted) in decode.listed_files(*value).items():
                    names = found.setdefault("" if kind == "." else kind, set())
                    (names.discard if is_deleted else names.add)(name)
        return found

    def _rows(self, view: View) -> tuple[dict[str, Row], dict[str, Place]]:
        groups: dict[Place, list[DataFile]] = {}
        for file in view.data:
            groups.setdefault((file.path.rpartition("/")[0], file.file_id), []).append(file)
        rows: dict[str, Row] = {}
        places: dict[str, Place] = {}
        completions = dict(view.completions)
        for place, files in groups.items():
            for key, row in self._group(completions, place, files).items():
                if key in places:
                    raise BrokenTableError(f"{key} lives twice: in {places[key]} and in {place}")
                if row.day != place[0]:
                    raise BrokenTableError(f"{key} of {row.day} lies in {place}")
                rows[key], places[key] = row, place
        return rows, places

    def _group(self, completions: dict[str, str], place: Place, files: list[DataFile]) -> dict[str, Row]:
        """The rows of a file group; not to be changed."""
        times = [completions.get(file.instant, file.instant) for file in files]
        on = (*files, *times, *(self._read(file.path) for file in files))
        return self._once("group", "/".join(place), on, lambda: self._merged(completions, files))

    def _merged(self, completions: dict[str, str], files: list[DataFile]) -> dict[str, Row]:
        base = max((f for f in files if not f.is_log), key=lambda f: f.instant, default=None)
        start = base.instant if base is not None else ""
        live: dict[str, Row] = dict(self._base_rows(base)) if base is not None else {}
        gone: dict[str, int] = {}
        logs = [f for f in files if f.is_log and completions.get(f.instant, f.instant) >= start]
        for log in _in_order(completions, logs):
            upserts, deleted = self._log_rows(log)
            for key, row in upserts.items():
                floor = live[key].at if key in live else gone.get(key, row.at)
                if not self._ordered or row.at >= floor:
                    live[key] = row
                    gone.pop(key, None)
            for key, at in deleted:
                if self._ordered and at is not None and key in live and live[key].at > at:
                    continue
                live.pop(key, None)
                if at is not None:
                    gone[key] = max(at, gone.get(key, at))
        return live

    def _base_rows(self, file: DataFile) -> dict[str, Row]:
        found: dict[str, Row] = self._cached(file.path, _by_key)
        return found

    def _log_rows(self, file: DataFile) -> tuple[dict[str, Row], list[decode.Deleted]]:
        found: tuple[dict[str, Row], list[decode.Deleted]] = self._cached(file.path, _log_content)
        return found

    def _index(self, view: View) -> dict[str, Place]:
        completions = {**dict(view.completions), **self.metadata_timeline().completed}
        index: dict[str, Place] = {}
        shards: dict[str, list[DataFile]] = {}
        for file in _in_order(dict(view.completions), view.shards):
            shards.setdefault(file.file_id, []).append(file)
        for files in shards.values():
            start = max((f.instant for f in files if not f.is_log), default="")
            for file in files:
                completion = completions.get(file.instant, file.instant)
                if (file.is_log and completion < start) or (not file.is_log and file.instant < start):
                    continue
                for key, value in self._entries(file):
                    if value is None:
                        index.pop(key, None)
                    else:
                        index[key] = decode.index_place(*value)
        return index

    def slices(self, view: View) -> dict[Place, dict[str, Row]]:
        """The rows of each file group that has log files."""
        groups: dict[Place, list[DataFile]] = {}
        for file in view.data:
            groups.setdefault((file.path.rpartition("/")[0], file.file_id), []).append(file)
        logged = {place: files for place, files in groups.items() if any(f.is_log for f in files)}
        completions = dict(view.completions)
        return {place: dict(self._group(completions, place, files)) for place, files in logged.items()}

    def _entries(self, file: DataFile) -> list[tuple[str, tuple[bytes, str] | None]]:
        """(key, (value, schema)), value None for a delete, in the file's order."""
        found: list[tuple[str, tuple[bytes, str] | None]] = self._cached(file.path, self._metadata_entries)
        return found

    def _metadata_entries(self, data: bytes) -> list[tuple[str, tuple[bytes, str] | None]]:
        if not data.startswith(b"#HUDI#"):
            # A base file; its values are written under the schema that the log blocks name.
            return [(key, (value, self._schema)) for key, value in decode.hfile_entries(data)]
        entries: list[tuple[str, tuple[bytes, str] | None]] = []
        for block in decode.log_blocks(data):
            if block.kind == decode.HFILE:
                self._schema = block.schema
                found = decode.hfile_entries(block.content)
                entries += [(key, (value, block.schema) if value else None) for key, value in found]
            elif block.kind == decode.DELETE:
                entries += [(each.key, None) for each in decode.deletes(block.content)]
        return entries

    def _cached(self, path: str, parse: Callable[[bytes], Any]) -> Any:
        data = self._read(path)
        name = (path, hash(data))
        if name not in self._parsed:
            self._parsed[name] = parse(data)
        return self._parsed[name]


def _in_order(completions: dict[str, str], files: Iterable[DataFile]) -> list[DataFile]:
    # Bootstrap completed before everything.
    return sorted(files, key=lambda f: (f.is_log, completions.get(f.instant, f.instant)))


def _archived_times(data: bytes) -> list[tuple[Any, ...]]:
    return decode.parquet_columns(data, ("instantTime", "completionTime"))


def _by_key(data: bytes) -> dict[str, Row]:
    rows = decode.parquet_columns(data, ("_hoodie_record_key", "day", "ts", "v"))
    found = {key: Row(day, at, number) for key, day, at, number in rows}
    if len(found) != len(rows):
        raise BrokenTableError("a key is there twice in one file")
    return found


def _log_content(data: bytes) -> tuple[dict[str, Row], list[decode.Deleted]]:
    upserts: dict[str, Row] = {}
    deleted: list[decode.Deleted] = []
    for block in decode.log_blocks(data):
        if block.kind == decode.PARQUET:
            upserts |= _by_key(block.content)
        elif block.kind == decode.DELETE:
            deleted += decode.deletes(block.content)
    return upserts, deleted
