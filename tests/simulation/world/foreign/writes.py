"""Writes of the engine: upserts, deletes and moves through the record index, inserts into file groups that
are there, and what takes the place of whole partitions. In one step, or left in flight and finished later
under Hudi's optimistic concurrency control.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from tests.hudi_rules.slices import Group
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import Bench, Changes, Write
from tests.simulation.world.foreign.partitioned_entries import hidden_from_writers
from tests.simulation.world.foreign.replaced_entries import keys_of_base_files, left_behind, rows_elsewhere
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.timeline.avro_container import encode_container
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

_COMPLETES_TWICE: Final = 2
_FAILS: Final = "Hudi fails: it finds no slice of"


class LeftOutError(Exception):
    """The engine does not do it; says why."""


class Writes:
    """Commits of rows. ``begun``: their instants; ``committed``: the instants of those that completed.
    ``rebuild()`` builds, when a write begins, the index that a restore dropped.
    """

    def __init__(self, bench: Bench, rebuild: Callable[[], None]) -> None:
        self._bench, self._rebuild = bench, rebuild
        self.begun = set[str]()
        self.committed = set[str]()

    # ------------------------------------------------------------ beginning

    def begin(self, look: Look, changes: Changes, into: Group | None = None) -> Write:
        """A write with all its files and nothing completed. ``into``: the file group that takes the new rows,
        instead of new ones. Raises LeftOutError.
        """
        bench = self._bench
        if left := left_behind(look, changes):
            raise LeftOutError(f"Hudi would write {left} where nobody reads: their index entries were left")
        places = look.content.places
        touched = {places[key] for key in changes if key in places} | ({into} if into is not None else set())
        write = self._request(look, bench.action, "UPSERT", changes, touched)
        updates: dict[Group, dict[str, Row]] = {}
        deletes: dict[Group, set[str]] = {}
        new: dict[str, dict[str, Row]] = {}
        for key, row in changes.items():
            at = places.get(key)
            if at is not None and (row is None or row.day != at[0]):
                deletes.setdefault(at, set()).add(key)
            elif at is not None and row is not None:
                updates.setdefault(at, {})[key] = row
            if row is None:
                write.places[key] = None
            elif at is None or row.day != at[0]:
                if into is not None and into[0] == row.day:
                    updates.setdefault(into, {})[key] = row
                    write.places[key] = RecordLocation(*into)
                else:
                    new.setdefault(row.day, {})[key] = row
        for group in sorted(updates.keys() | deletes.keys()):
            self._change(look, write, group, updates.get(group, {}), deletes.get(group, set()), group == into)
        for day, rows in sorted(new.items()):
            self.new_group(write, day, rows)
        return write

    def new_group(self, write: Write, day: str, rows: dict[str, Row], is_cut: bool = False) -> None:
        """Rows in a file group of their own."""
        file_id = f"{self._bench.ids.uuid()}-0"
        self._bench.base_file(write, (day, file_id), rows, is_cut)
        write.places.update(dict.fromkeys(rows, RecordLocation(day, file_id)))

    def _change(
        self,
        look: Look,
        write: Write,
        group: Group,
        rows: dict[str, Row],
        deleted: set[str],
        rewrites: bool,
    ) -> None:
        if self._bench.is_log and not rewrites:
            self._bench.log_file(write, group, rows, deleted)
            return
        there = self._rows(look, group)
        live = {key: row for key, row in {**there, **rows}.items() if key not in deleted}
        self._bench.base_file(write, group, live)

    def _rows(self, look: Look, group: Group) -> dict[str, Row]:
        for place, files in look.view.merged:
            if place == group:
                return dict(look.reader.group_rows(place, files))
        return {}

    def _request(
        self,
        look: Look,
        action: str,
        operation: str,
        changes: Changes,
        touched: Iterable[Group],
        unindexed: Iterable[str] = (),
    ) -> Write:
        """``unindexed``: keys that lose their index entries, besides those that change."""
        bench = self._bench
        touched = set(touched)
        if hidden := hidden_from_writers(look, bench.layout, {*changes, *unindexed}):
            raise LeftOutError(f"{_FAILS} {hidden}")
        if touched & look.timeline.clustered.keys():
            raise LeftOutError("a clustering is scheduled for a file group that it would change")
        instant = bench.instant(look)
        if not bench.is_sound(look, instant, touched, {*changes, *unindexed}):
            raise LeftOutError("its clock is behind what it would change")
        known = frozenset(each.requested for each in look.timeline.hudi.completed())
        write = Write(instant, action, operation, changes, known, groups=touched)
        plan = b""
        if action == "replacecommit":
            record: dict[str, Any] = {
                "operationType": operation,
                "clusteringPlan": None,
                "extraMetadata": {},
                "version": 1,
            }
            plan = encode_container("requested-replace-metadata", record)
        self.begun.add(instant)
        instants.beat(bench.storage, instant)
        instants.request(bench.storage, instant, action, plan)
        instants.start(bench.storage, instant, action, encode_commit_metadata(CommitMetadata()))
        self._rebuild()
        return write

    # ------------------------------------------------------------ whole partitions

    def begin_replace(self, look: Look, day: str, rows: dict[str, Row]) -> Write:
        """INSERT_OVERWRITE of a partition, or with no rows DELETE_PARTITION. Index entries go by base files
        alone. Raises LeftOutError, also where that would take entries of rows that moved elsewhere: we stop
        then until the index is built anew.
        """
        replaced = sorted(place for place, _ in look.view.merged if place[0] == day)
        if not replaced and not rows:
            raise LeftOutError("the partition has no file group")
        if set(replaced) & look.timeline.scheduled.keys():
            raise LeftOutError("a compaction is scheduled for a file group that it would replace")
        gone = [key for key, place in look.content.places.items() if place in set(replaced)]
        unindexed = sorted(keys_of_base_files(look, set(replaced)))
        if moved := rows_elsewhere(look, unindexed, set(replaced)):
            raise LeftOutError(f"it would take the index entries of {moved}, which moved elsewhere")
        changes: Changes = {**dict.fromkeys(gone), **rows}
        operation = "INSERT_OVERWRITE" if rows else "DELETE_PARTITION"
        write = self._request(look, "replacecommit", operation, changes, replaced, unindexed)
        write.places.update(dict.fromkeys(unindexed))
        write.replaced = {day: [file_id for _, file_id in replaced]}
        if rows:
            self.new_group(write, day, rows)
        return write

    # ------------------------------------------------------------ the end

    def finish(self, write: Write, look: Look) -> None:
        """Both commits, if nothing that completed meanwhile changed the same file groups. Raises
        LeftOutError: it lost, and leaves its instant pending.
        """
        self.check_conflicts(write, look)
        metadata_completion, completion = (self._bench.instant(look) for _ in range(_COMPLETES_TWICE))
        keys = {*write.changes, *write.places}
        if hidden := hidden_from_writers(look, self._bench.layout, keys):
            self.stop(write)
            raise LeftOutError(f"{_FAILS} {hidden}")
        sound = self._bench.is_sound(look, metadata_completion, write.groups, keys)
        if not sound or metadata_completion <= write.instant:
            self.stop(write)
            raise LeftOutError("its clock is behind what it changed")
        self.commit_metadata(write, metadata_completion)
        self.commit_data(write, completion)
        self._bench.clock.wait()

    def check_conflicts(self, write: Write, look: Look) -> None:
        """Hudi's check: what completed after the write was requested, compactions apart; and what its clock
        hides from it, which it would overwrite.
        """
        table = self._bench.table(look)
        for each in look.timeline.hudi.completed():
            if each.requested in write.known or each.action == "compaction":
                continue
            document = table.document(each)
            stats = document.get("partitionToWriteStats") or {}
            changed = {(partition, stat["fileId"]) for partition, found in stats.items() for stat in found}
            gone = document.get("partitionToReplaceFileIds") or {}
            changed |= {(partition, file_id) for partition, found in gone.items() for file_id in found}
            if changed & write.groups:
                self.stop(write)
                raise LeftOutError(f"{each.name} changed the same file groups")
        if look.timeline.clustered.keys() & write.groups and write.action != "clustering":
            self.stop(write)
            raise LeftOutError("a clustering was scheduled for a file group that it changes")

    def stop(self, write: Write) -> None:
        """Its process ends; the instant stays until somebody rolls it back."""
        instants.stop(self._bench.storage, write.instant)

    def is_dead(self, instant: str, in_flight: Write | None) -> bool:
        """Whether nobody keeps the heartbeat of a pending write. A crash of the machine may bring the file
        of a dead one back: Hudi goes by its age, so it counts for nothing.
        """
        if instant in self.begun:
            return in_flight is None or in_flight.instant != instant
        return not self._bench.storage.exists(instants.heartbeat(instant))

    def commit_metadata(self, write: Write, completion: str) -> None:
        """The first of its two commits."""
        self._bench.write_commit(write, completion)

    def commit_data(self, write: Write, completion: str) -> None:
        """The second one; readers see it."""
        content = self._bench.commit_document(write)
        instants.complete(self._bench.storage, write.instant, write.action, completion, content)
        instants.unmark(self._bench.storage, write.instant)
        instants.stop(self._bench.storage, write.instant)
        self.committed.add(write.instant)
