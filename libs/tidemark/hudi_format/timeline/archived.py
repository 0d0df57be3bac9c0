"""The archived timeline: instants that an archiver moved out of the active one. Each question reads the files
whose names say that they may hold the answer (`archive_files`). Special cases:

* An instant is in several files: an archiver that finds another one's unfinished work writes it again. Of two
  completion times of one instant the earlier one counts, as on the active timeline.
* A file is gone: archivers merge these files (they form an LSM tree), so a newer manifest exists, and reading
  starts again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

from tidemark.hudi_format.errors import CorruptFileError, FileMissingError
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline.archive_files import (
    EVER,
    ArchivedInstant,
    ArchiveFile,
    KeptArchive,
    Manifest,
    Range,
    RowGroup,
    newest_version,
    touches,
)

_READ_ATTEMPTS_MAX: Final = 5
_LONGEST: Final = timedelta(days=1)
_SECONDS: Final = "%Y%m%d%H%M%S"
_SECOND_DIGITS: Final = 14
_T = TypeVar("_T")


class ArchivedTimeline:
    """Reads the archive below `<root>/timeline/history` when asked. `kept`: what earlier objects for the same
    folder have read; without it this one begins anew.

    All methods raise CorruptFileError, and FileMissingError when its files keep changing.
    """

    def __init__(self, storage: Storage, root: str = ".hoodie", kept: KeptArchive | None = None) -> None:
        self._storage = storage
        self._folder = join_path(root, "timeline", "history")
        self._kept = kept if kept is not None else KeptArchive()
        self._manifest: Manifest | None = None

    def is_empty(self) -> bool:
        """Whether nothing was ever archived."""
        return self._of_files(lambda files: not files)

    def completion_time(self, requested: str) -> str | None:
        """When an archived instant completed; None when the archive does not have it."""
        return min((row[1] for row in self._rows((requested, requested))), default=None)

    def completion_times(self, first: str = EVER[0], last: str = EVER[1]) -> dict[str, str]:
        """Requested time -> completion time of the instants with requested times in [first, last]."""
        rows = sorted(self._rows((first, last)), key=lambda row: row[1], reverse=True)
        return {requested: completion for requested, completion, _ in rows}

    def identities(self, first: str = EVER[0], last: str = EVER[1]) -> frozenset[str]:
        """The identities (see `timeline.identity`) of the instants with requested times in [first, last]."""
        return frozenset(
            f"{requested}_{completion}.{action}"
            for requested, completion, action in self._rows((first, last))
            if action
        )

    def identities_of(self, word: str) -> frozenset[str]:
        """The identities of all instants with this action, which should be a rare one: of each file they are
        looked up once.
        """

        def of_file(file: ArchiveFile) -> frozenset[str]:
            if not self._kept.may_have(self._storage, self._folder, file, word):
                return frozenset()
            found = (row for row in self._group_rows(self._groups_of(file), word) if row[2] == word)
            return frozenset(f"{requested}_{completion}.{action}" for requested, completion, action in found)

        def read(files: Sequence[ArchiveFile]) -> frozenset[str]:
            kept = [self._kept.derived(file, word, partial(of_file, file)) for file in files]
            return frozenset().union(*kept)

        return self._of_files(read)

    def completed_between(self, first: str, last: str = EVER[1]) -> list[tuple[str, str]]:
        """(requested time, completion time) of the instants that completed in [first, last], in the order of
        completion.

        Their requested times say nothing, so the statistics of all files are looked at, and then the row
        groups that may have such times.
        """

        found: dict[str, str] = {}
        for requested, completion, _ in self.completed_names(first, last):
            found[requested] = min(found.get(requested, completion), completion)
        return sorted(found.items(), key=lambda times: times[1])

    def completed_names(self, first: str, last: str = EVER[1]) -> list[tuple[str, str, str]]:
        """(requested time, completion time, action) of each archived instant that completed in [first, last],
        in no order; the parts of its identity. Reads as much as `completed_between`.
        """

        def read(files: Sequence[ArchiveFile]) -> set[tuple[str, str, str]]:
            found: set[tuple[str, str, str]] = set()
            for group in self._groups([file for file in files if file.range[0] <= last], EVER):
                if not touches(group.completion, (first, last)):
                    continue
                rows = self._kept.rows(self._storage, self._folder, group)
                for number, completion in enumerate(rows.completion):
                    if first <= completion <= last:
                        found.add(rows.of(number))
            return found

        return list(self._of_files(read))

    def has_completed_after(self, time: str) -> bool:
        """Whether an archived instant completed after that time. The statistics of all files are looked
        at.
        """

        def is_any(group: RowGroup) -> bool:
            if group.completion != EVER:
                return group.completion[1] > time
            rows = self._kept.rows(self._storage, self._folder, group)
            return any(completion > time for completion in rows.completion)

        return self._of_files(lambda files: any(is_any(group) for group in self._groups(files, EVER)))

    def newest_completion(self, above: str | None, counts: Callable[[str], bool]) -> str | None:
        """The newest completion time of the archived instants of which `counts(requested time)` is true, if
        it is above `above`; else `above`.

        Instants that were requested a day before `above` or earlier are not looked at: they would have to
        have run for longer than a day, and have been archived at once.
        """

        def read(files: Sequence[ArchiveFile]) -> str | None:
            newest = above
            since = _day_before(above if above is not None else max((f.range[1] for f in files), default=""))
            for group in self._groups(files, (since, EVER[1])):
                if newest is not None and group.completion[1] <= newest:
                    continue
                rows = self._kept.rows(self._storage, self._folder, group)
                times = zip(rows.completion, rows.requested, strict=True)
                later = sorted((time for time in times if newest is None or time[0] > newest), reverse=True)
                newest = next((time for time, requested in later if counts(requested)), newest)
            return newest

        return self._of_files(read)

    def instants(self, first: str = EVER[0], last: str = EVER[1]) -> list[ArchivedInstant]:
        """The archived instants with requested times in [first, last], in that order, with metadata and
        plan.
        """

        def read(files: Sequence[ArchiveFile]) -> list[ArchivedInstant]:
            return [
                row
                for group in self._groups(files, (first, last))
                for row in self._kept.contents(self._storage, self._folder, group, (first, last))
            ]

        return _distinct(self._of_files(read))

    def instants_at(self, requested: Collection[str]) -> list[ArchivedInstant]:
        """As `instants`, of these requested times alone: of what lies between them nothing is read."""
        times = sorted(requested)

        def read(files: Sequence[ArchiveFile]) -> list[ArchivedInstant]:
            found: list[ArchivedInstant] = []
            for group in self._groups(files, (times[0], times[-1])):
                asked = times[
                    bisect_left(times, group.requested[0]) : bisect_right(times, group.requested[1])
                ]
                there = self._kept.rows(self._storage, self._folder, group).requested if asked else ()
                here = [time for time in asked if bisect_left(there, time) < bisect_right(there, time)]
                if here:
                    span = (here[0], here[-1])
                    rows = self._kept.contents(self._storage, self._folder, group, span)
                    found += [row for row in rows if row.requested in requested]
            return found

        return _distinct(self._of_files(read)) if times else []

    def _rows(self, span: Range) -> list[tuple[str, str, str]]:
        def read(files: Sequence[ArchiveFile]) -> list[tuple[str, str, str]]:
            found = []
            for group in self._groups(files, span):
                rows = self._kept.rows(self._storage, self._folder, group)
                found += [rows.of(number) for number in rows.between(span)]
            return found

        return self._of_files(read)

    def _group_rows(self, groups: Sequence[RowGroup], word: str) -> Iterator[tuple[str, str, str]]:
        for group in groups:
            if group.action[0] <= word <= group.action[1]:
                rows = self._kept.rows(self._storage, self._folder, group)
                yield from (rows.of(number) for number in range(len(rows.actions)))

    def _groups(self, files: Sequence[ArchiveFile], span: Range) -> Iterator[RowGroup]:
        for file in files:
            if touches(file.range, span):
                yield from (group for group in self._groups_of(file) if touches(group.requested, span))

    def _groups_of(self, file: ArchiveFile) -> tuple[RowGroup, ...]:
        return self._kept.groups(self._storage, self._folder, file)

    def _of_files(self, read: Callable[[Sequence[ArchiveFile]], _T]) -> _T:
        """What `read` finds in the files of the manifest that was the newest at the first question, or in
        those of a newer one when a file is gone.
        """
        looked: list[tuple[int | None, FileMissingError]] = []
        for _ in range(_READ_ATTEMPTS_MAX):
            try:
                if self._manifest is None:
                    self._manifest = self._kept.manifest(self._storage, self._folder)
                return read(self._manifest.files)
            except FileMissingError as missing:
                version = (
                    self._manifest.version
                    if self._manifest is not None
                    else newest_version(self._storage, self._folder)
                )
                looked.append((version, missing))
                self._manifest = None
        version, error = looked[-1]
        if any(read_version != version for read_version, _ in looked):
            raise FileMissingError(f"{self._folder}: its files keep changing while they are read") from error
        # Archivers publish a manifest before they delete the files of the former one.
        raise CorruptFileError(
            f"{self._folder}: a file that _version_ and manifest_{version} name does not exist: {error}"
        ) from error


def _distinct(rows: list[ArchivedInstant]) -> list[ArchivedInstant]:
    """Each instant once, with its earlier completion time, in order of requested time."""
    rows = sorted(rows, key=lambda row: row.completion, reverse=True)
    return sorted({(row.requested, row.action): row for row in rows}.values(), key=lambda row: row.requested)


def _day_before(time: str) -> str:
    """A time one day before an instant's; "" for one that is no time."""
    try:
        before = datetime.strptime(time[:_SECOND_DIGITS], _SECONDS).replace(tzinfo=UTC) - _LONGEST
    except (ValueError, OverflowError):
        return ""
    return before.strftime(_SECONDS)
