"""What Tidemark's table services must leave for Hudi's readers and services, whatever rows are there now.

* An instant has one completed file: two executors of one plan both completed it.
* The metadata table's newest compaction stays on its timeline: where an index is added later, the base files
  of an archived one count no more.
* An instant that leaves the metadata table's timeline has no log file in a current slice of it: Hudi would
  read that file no more.
* A write that leaves the data table's timeline has no log file in a current slice that was requested after
  it: a reader without the archive would count the file to the slice before.
* A plan of a data compaction names as missing each partition in which it leaves log files: Hudi's planner
  looks nowhere else.
* No instant of the metadata table has a heartbeat: while there is a fresh one every write of Spark fails.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from tests.hudi_rules.documents import decode
from tests.hudi_rules.slices import groups_of, parse_data_file, slices_of
from tests.hudi_rules.timeline import parse_name
from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.checkers.table import DATA_TIMELINE, METADATA_TIMELINE, NO_TIMELINE, Reader
from tests.simulation.world.storage import WatchedStorage

_PLAN: Final = ".compaction.requested"
_HEARTBEATS: Final = ".hoodie/metadata/.hoodie/.heartbeat"


class WatchedServices:
    """One per world."""

    def __init__(self, judge: Judge, reader: Reader, storage: WatchedStorage) -> None:
        self._judge, self._reader, self._storage = judge, reader, storage
        self._data = self._metadata = NO_TIMELINE
        # An archival deletes what tells a compaction from a commit before it deletes the completed file.
        self._compactions = set[str]()

    def stored(self, path: str) -> None:
        """Somebody changed something there."""
        folder, _, name = path.rpartition("/")
        if folder == _HEARTBEATS:
            self._judge.say("G5", f"the metadata table's instant {name} has a heartbeat")
        if folder not in (DATA_TIMELINE, METADATA_TIMELINE):
            return
        self._check_completed(folder)
        if folder == METADATA_TIMELINE:
            self._check_archived()
            return
        self._check_archived_writes()
        if name.endswith(_PLAN) and not self._judge.is_elsewhere:
            self._check_missing(name)

    def _check_completed(self, folder: str) -> None:
        parsed = (parse_name(name) for name in self._storage.names(folder))
        found = Counter(each[0] for each in parsed if each and each[1] and each[2] != "savepoint")
        for instant, count in found.items():
            if count > 1:
                self._judge.say("G5", f"instant {instant} has {count} completed files")

    def _check_archived(self) -> None:
        before, after = self._metadata, self._reader.metadata_timeline()
        self._metadata = after
        self._compactions |= after.compactions
        gone = before.completed.keys() - after.completed.keys()
        if self._judge.is_elsewhere or not gone:
            return
        newest = max(self._compactions & before.completed.keys(), default="")
        if newest in gone:
            self._judge.say("G2", f"the metadata table's newest compaction {newest} left its timeline")
        view = self._reader.view(self._reader.data_timeline())
        read = (file for merged in (view.shards, view.listing) for _, files in merged for file in files)
        for file in read:
            if file.is_log and file.instant in gone:
                self._judge.say("G2", f"{file.path} is read, and its instant left the timeline")

    def _check_archived_writes(self) -> None:
        before, after = self._data, self._reader.data_timeline()
        self._data = after
        gone = before.completed.keys() - after.completed.keys()
        if self._judge.is_elsewhere or not gone:
            return
        files = {folder: list(self._storage.names(folder)) for folder in self._storage.folders()}
        for group, names in groups_of(files).items():
            if group in after.replaced:
                continue
            newest = slices_of(names, after.hudi, after.scheduled.get(group))[-1:]
            late = (
                log
                for each in newest
                for log in map(parse_data_file, each.logs)
                if log and log.instant in gone and log.instant < each.instant
            )
            for log in late:
                self._judge.say("G4", f"{log.name} is archived, and belongs behind a later compaction")

    def _check_missing(self, name: str) -> None:
        if name not in self._storage.names(DATA_TIMELINE):
            return
        instant, data = name.removesuffix(_PLAN), self._reader.data_timeline()
        plan = decode(self._storage.memory.read(f"{DATA_TIMELINE}/{name}"))
        taken = {(each["partitionPath"], each["fileId"]) for each in plan["operations"]}
        files = {folder: list(self._storage.names(folder)) for folder in self._storage.folders()}
        left = set()
        for group, names in groups_of(files).items():
            if group in taken or group in data.replaced:
                continue
            newest = [each for each in slices_of(names, data.hudi) if each.instant < instant][-1:]
            logs = [parse_data_file(log) for each in newest for log in each.logs]
            if any(log and (data.hudi.completion(log.instant) or instant) < instant for log in logs):
                left.add(group[0])
        unnamed = sorted(left - set(plan.get("missingSchedulePartitions") or ()))
        if unnamed:
            self._judge.say("G5", f"the plan {name} leaves log files in {unnamed}, and does not say so")
