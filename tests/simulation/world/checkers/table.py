"""A reader of the table's files by Hudi's rules (`tests.hudi_rules`): what is committed, and what rows and
index entries there are.

The data timeline is listed first, the metadata table after it. A metadata deltacommit counts when it is
completed itself and its instant is completed in that data listing, or older than the listing's first write,
or is bootstrap. A file counts when its instant is completed in the data listing, or older than the first
write. What a file group's slices are, and which groups are replaced, is Hudi's own rule.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any, Final, NamedTuple, TypeVar

from tests.hudi_rules.table import HudiTable, newest_manifest
from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.cleans import Clean, cleans_of
from tests.simulation.world.checkers.layout import Layout
from tests.simulation.world.checkers.merged import (
    DataFile,
    Merged,
    counts_in_metadata,
    merged_files,
    parse_file,
)
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.checkers.partitioned import hidden_groups, identity_in, partitioned_entries
from tests.simulation.world.checkers.secondary import FOLDER, ValueEntries, value_entries
from tests.simulation.world.checkers.timelines import (
    DATA_TIMELINE,
    METADATA_TIMELINE,
    NO_TIMELINE,
    Place,
    Timeline,
    read_timeline,
)

__all__ = [
    "DATA_TIMELINE", "METADATA_TIMELINE", "NO_TIMELINE", "DataFile", "Merged", "Timeline", "parse_file",
]  # fmt: skip

_HISTORY: Final = f"{DATA_TIMELINE}/history"
_INDEX_FOLDER: Final = ".hoodie/metadata/record_index"
_FILES_FOLDER: Final = ".hoodie/metadata/files"
_STATS_FOLDER: Final = ".hoodie/metadata/column_stats"
_ALL_PARTITIONS: Final = "__all_partitions__"
_T = TypeVar("_T")


class BrokenTableError(Exception):
    """What a reader trips over: a key twice, a file that is not there."""


_Slices = tuple[tuple[DataFile, ...], Merged]
"""The files of a folder that count, and how they are merged."""


class View(NamedTuple):
    """What a reader that looks now works with. Equal views hold equal rows. ``data``: all committed files;
    ``merged``, ``shards``, ``listing``, ``secondary``, ``stats``: what is read of the table, the record
    index, the `files` partition, the secondary index and the column stats.
    """

    data: tuple[DataFile, ...]
    merged: Merged
    shards: Merged
    listing: Merged
    secondary: Merged = ()
    stats: Merged = ()


class Content(NamedTuple):
    """Live rows by key, where each lives, and where the index says that it lives."""

    rows: dict[str, Row]
    places: dict[str, Place]
    indexed: dict[str, Place]


class Reader:
    """``names(folder)`` lists the files of a folder, in a list that nobody changes, ``read(path)`` gives a
    file's bytes, ``folders()`` the table's partitions.
    """

    def __init__(
        self,
        names: Callable[[str], list[str]],
        read: Callable[[str], bytes],
        folders: Callable[[], list[str]],
        ordered: bool,
        layout: Layout | None = None,
    ) -> None:
        self._names, self._read, self._folders, self._ordered = names, read, folders, ordered
        self._layout = layout or Layout()
        self._parsed: dict[tuple[str, int], Any] = {}
        self._made: dict[tuple[str, str], tuple[tuple[object, ...], Any]] = {}
        self._listings: dict[str, tuple[list[str], tuple[str, ...]]] = {}
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
        listed = self._names(folder)
        before, names = self._listings.get(folder, (None, ()))
        if before is not listed:
            if tuple(listed) != names:
                names = tuple(listed)
            self._listings[folder] = (listed, names)
        return names

    def has(self, path: str) -> bool:
        """Whether there is such a file."""
        folder, _, name = path.rpartition("/")
        return name in self._names(folder)

    def data_timeline(self) -> Timeline:
        return self._timeline(DATA_TIMELINE)

    def metadata_timeline(self) -> Timeline:
        return self._timeline(METADATA_TIMELINE)

    def _timeline(self, folder: str) -> Timeline:
        names = self._listed(folder)
        history = self._history() if folder == DATA_TIMELINE else None
        return self._once(
            "timeline", folder, (names, history), lambda: read_timeline(folder, names, self._read, history)
        )

    def files(self, folder: str) -> tuple[DataFile, ...]:
        """All data files in a folder, whatever they count."""
        names, prefix = self._listed(folder), f"{folder}/" if folder else ""

        def parsed() -> tuple[DataFile, ...]:
            found = (parse_file(f"{prefix}{name}") for name in names)
            return tuple(each for each in found if each is not None)

        return self._once("files", folder, (names,), parsed)

    def view(self, data: Timeline) -> View:
        """What a reader sees that has listed the data timeline as given, and everything else now. It lists by
        the metadata table: files that are not committed are not there for it.
        """
        metadata, rolled_back = self.metadata_timeline(), self.rolled_back

        def valid(file: DataFile) -> bool:
            # Base files are compactions', which are no instants of the data table; slices tell which count.
            return not file.is_log or counts_in_metadata(file.instant, data, metadata)

        def shown(file: DataFile) -> bool:
            return data.counts(file.instant) and (
                file.instant not in rolled_back or file.instant in data.completed
            )

        def slices(folder: str, keep: Callable[[DataFile], bool], timeline: Timeline) -> _Slices:
            def made() -> _Slices:
                files = tuple(filter(keep, self.files(folder)))
                return files, merged_files(files, timeline)

            made_of = (self._listed(folder), data, metadata, rolled_back)
            return self._once("slices", folder, made_of, made)

        hidden = self.hidden(data, metadata)
        groups = [slices(folder, shown, data) for folder in self._folders()]
        shards = slices(_INDEX_FOLDER, lambda file: valid(file) and file.file_id not in hidden, metadata)
        listed = slices(_FILES_FOLDER, valid, metadata)
        secondary = slices(FOLDER, valid, metadata)
        stats = slices(_STATS_FOLDER, valid, metadata)
        return self._once(
            "view",
            "",
            (shards, listed, secondary, stats, *groups),
            lambda: View(
                tuple(file for files, _ in groups for file in files),
                tuple(each for _, merged in groups for each in merged),
                shards[1],
                listed[1],
                secondary[1],
                stats[1],
            ),
        )

    def hidden(self, data: Timeline, metadata: Timeline) -> set[str]:
        """The file groups of a partitioned record index of which readers see nothing."""
        if not self._layout.by_partition:
            return set()
        names = self._listed(_INDEX_FOLDER)
        return self._once(
            "hidden",
            _INDEX_FOLDER,
            (names, data, metadata),
            lambda: hidden_groups(names, lambda instant: counts_in_metadata(instant, data, metadata)),
        )

    def by_folder(self, data: Timeline) -> dict[str, Row]:
        """The rows for a reader that lists folders: base files that are not committed begin slices, too."""
        found = [merged_files(self.files(folder), data) for folder in self._folders()]
        return self._rows(tuple(each for part in found for each in part))[0]

    def _history(self) -> HudiTable | None:
        """The archived instants. When they completed counts: a write that was requested before a compaction,
        and completed after it, lies above its base file for ever, although it may be older than all of the
        timeline. So does what they replaced.
        """
        number = newest_manifest(self._listed, self._read, _HISTORY)
        if number is None:
            return None
        manifest = self._read(f"{_HISTORY}/manifest_{number}")
        return self._once("history", "", (manifest,), lambda: HudiTable(self._names, self._read, {}))

    def cleans(self) -> dict[str, Clean]:
        """All completed cleans of the table, archived ones, too."""
        history = self._history()
        rows = history.history if history is not None else []
        return cleans_of(self._listed(DATA_TIMELINE), self._read, rows)

    def content(self, view: View) -> Content:
        """Rows and index of a view. Raises BrokenTableError."""
        return self._once("content", "", (view,), lambda: self._content(view))

    def _content(self, view: View) -> Content:
        rows, places = self._rows(view.merged)
        return Content(rows, places, self._index(view))

    def listing(self, view: View) -> dict[str, set[str]]:
        """Partition path -> file names, as the `files` partition of the metadata table has them."""
        found = self._listing(view)
        return {path: names for path, names in found.items() if path != _ALL_PARTITIONS}

    def partitions(self, view: View) -> set[str]:
        """Partition paths of the list of partitions there. To Hudi any other partition is new."""
        return set(map(_path, self._listing(view).get(_ALL_PARTITIONS, ())))

    def _listing(self, view: View) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for _, files in view.listing:
            for file in files:
                for kind, value in self._entries(file):
                    if kind is None or value is None:
                        continue
                    for name, (_, is_deleted) in decode.listed_files(*value).items():
                        names = found.setdefault(_path(kind), set())
                        (names.discard if is_deleted else names.add)(name)
        return found

    def _rows(self, merged: Merged) -> tuple[dict[str, Row], dict[str, Place]]:
        rows: dict[str, Row] = {}
        places: dict[str, Place] = {}
        for place, files in merged:
            for key, row in self.group_rows(place, files).items():
                if key in places:
                    raise BrokenTableError(f"{key} lives twice: in {places[key]} and in {place}")
                if row.day != place[0]:
                    raise BrokenTableError(f"{key} of {row.day} lies in {place}")
                rows[key], places[key] = row, place
        return rows, places

    def group_rows(self, place: Place, files: tuple[DataFile, ...]) -> dict[str, Row]:
        """The rows of a file group by their identities, merged from these files; not to be changed."""
        on = (*files, *(self._read(file.path) for file in files))
        return self._once("group", "/".join(place), on, lambda: self._identified(place[0], files))

    def _identified(self, path: str, files: tuple[DataFile, ...]) -> dict[str, Row]:
        return {self._layout.identity(path, key): row for key, row in self._merge(files).items()}

    def _merge(self, files: tuple[DataFile, ...]) -> dict[str, Row]:
        live: dict[str, Row] = {}
        gone: dict[str, int] = {}
        for file in files:
            if not file.is_log:
                live = dict(self._base_rows(file))
                continue
            upserts, deleted = self._log_rows(file)
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
        found: dict[str, Row] = self._cached(file.path, self._by_key)
        return found

    def _log_rows(self, file: DataFile) -> tuple[dict[str, Row], list[decode.Deleted]]:
        found: tuple[dict[str, Row], list[decode.Deleted]] = self._cached(file.path, self._log_content)
        return found

    def _by_key(self, data: bytes) -> dict[str, Row]:
        columns = ("_hoodie_record_key", "day", "zone", "ts", "v", "note")
        rows = decode.parquet_columns(data, columns)
        path = self._layout.path
        found = {key: Row(path(day, zone), at, number, note) for key, day, zone, at, number, note in rows}
        if len(found) != len(rows):
            raise BrokenTableError("a key is there twice in one file")
        return found

    def _log_content(self, data: bytes) -> tuple[dict[str, Row], list[decode.Deleted]]:
        upserts: dict[str, Row] = {}
        deleted: list[decode.Deleted] = []
        for block in decode.log_blocks(data):
            if block.kind == decode.PARQUET:
                upserts |= self._by_key(block.content)
            elif block.kind == decode.DELETE:
                deleted += decode.deletes(block.content)
        return upserts, deleted

    def _index(self, view: View) -> dict[str, Place]:
        if self._layout.by_partition:
            return partitioned_entries(view.shards, self._entries, self._layout)
        index: dict[str, Place] = {}
        for _, files in view.shards:
            for file in files:
                for key, value in self._entries(file):
                    if value is None:
                        index.pop(key, None)
                    else:
                        index[key] = decode.index_place(*value)
        return index

    def secondary(self, view: View) -> ValueEntries:
        """The living entries of the secondary index."""
        return value_entries(view.secondary, self._entries)

    def instants_of(self, view: View, keys: set[str]) -> set[str]:
        """The instants whose index entries say something about one of these rows."""
        return {
            file.instant
            for (_, file_id), files in view.shards
            for file in files
            if any(identity_in(file_id, key, self._layout) in keys for key, _ in self._entries(file))
        }

    def index_entries(self, path: str) -> list[tuple[str, tuple[bytes, str] | None]]:
        """The records of a file of the metadata table, in its order: (key, (value, schema)), value None for
        a delete.
        """
        return list(self._cached(path, self._metadata_entries))

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


def _path(key: str) -> str:
    """The partition path for which a key of the `files` partition stands."""
    return "" if key == "." else key
