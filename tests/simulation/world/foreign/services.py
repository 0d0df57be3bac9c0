"""Table services of the engine that rewrite data files: compaction and clustering, planned, carried out
later, and cut off in the middle.
"""

from __future__ import annotations

from typing import Any, Final

from tests.hudi_rules.slices import Group, slices_of
from tests.hudi_rules.timeline import Instant
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import Bench, Write
from tests.simulation.world.foreign.undoing import Undoing
from tests.simulation.world.foreign.writes import LeftOutError, Writes
from tidemark.hudi_format.timeline.avro_container import encode_container
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata, group_stats
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    encode_compaction_plan,
)

METRICS: Final = (
    "TOTAL_LOG_FILES", "TOTAL_LOG_FILES_SIZE", "TOTAL_IO_MB", "TOTAL_IO_READ_MB", "TOTAL_IO_WRITE_MB",
)  # fmt: skip


class Services:
    """Raises LeftOutError for what Hudi would not do now.

    Whoever carries a plan out first takes back what another one left of it: a rollback deletes the files that
    its markers name and the inflight file, and the plan stays. A plan whose executor dies is no failed write:
    nobody else rolls it back.
    """

    def __init__(self, bench: Bench, writes: Writes, undoing: Undoing) -> None:
        self._bench, self._writes, self._undoing = bench, writes, undoing

    def roll_back(self, look: Look, action: str) -> None:
        """Takes back what a dead executor left; its plan waits for the next one."""
        pending = [each for each in look.timeline.hudi.pending(action) if each.inflight]
        if not pending:
            raise LeftOutError("nobody began to carry it out")
        self._undoing.roll_back_service(look, pending[0])

    def _scheduled(self, look: Look, action: str) -> tuple[Look, Instant]:
        """The oldest plan, as if nobody had begun with it."""
        pending = look.timeline.hudi.pending(action)
        if not pending:
            raise LeftOutError("none is scheduled")
        if pending[0].inflight:
            self._undoing.roll_back_service(look, pending[0])
            look = self._bench.look()
        return look, pending[0]

    # ------------------------------------------------------------ compaction

    def plan_compaction(self, look: Look) -> str:
        """Schedules all file groups with log files; returns the instant."""
        bench, table = self._bench, self._bench.table(look)
        instant = bench.instant(look)
        if instant <= (look.timeline.hudi.start or "") or look.timeline.hudi.pending("compaction"):
            raise LeftOutError("below the timeline's start, or another one is scheduled")
        operations = []
        for group in sorted(table.read_slices()):
            if group in look.timeline.clustered:
                continue
            slices = slices_of(table.groups[group], table.timeline, instant)
            before = [each for each in slices if each.instant < instant]
            if slices[-1].instant != instant or not before or not before[-1].logs:
                continue
            newest = before[-1]
            operations.append(
                CompactionOperation(
                    partition_path=group[0],
                    file_id=group[1],
                    base_instant=newest.instant,
                    log_files=tuple(newest.logs),
                    base_file=newest.base,
                    metrics=dict.fromkeys(METRICS, 1.0),
                )
            )
        if not operations:
            raise LeftOutError("no file group has log files")
        plan = encode_compaction_plan(RequestedCompaction(operations=tuple(operations)))
        instants.request(bench.storage, instant, "compaction", plan)
        bench.clock.wait()
        return instant

    def run_compaction(self, look: Look) -> None:
        """Carries the scheduled one out, whatever was committed since."""
        bench = self._bench
        look, pending = self._scheduled(look, "compaction")
        in_metadata = self._listed_after(look, pending.requested)
        in_data = self._after(look, pending.requested)
        write = self._compacted(look, pending)
        bench.write_commit(write, in_metadata)
        metadata = CommitMetadata(
            write_stats=group_stats(write.stats), compacted=True, operation_type="COMPACT"
        )
        content = encode_commit_metadata(metadata)
        instants.complete(bench.storage, write.instant, "compaction", in_data, content)
        instants.unmark(bench.storage, write.instant)
        bench.clock.wait()

    def fail_compaction(self, look: Look, in_metadata: bool) -> str:
        """Dies with half of the files made, the last of these not wholly; ``in_metadata``: with all of them,
        between the metadata table's commit and its own. Returns the instant.
        """
        bench = self._bench
        look, pending = self._scheduled(look, "compaction")
        self._check_rollback(look, pending, in_metadata)
        completion = self._after(look, pending.requested)
        write = self._compacted(look, pending, is_cut=not in_metadata)
        if in_metadata:
            bench.write_commit(write, completion)
        return write.instant

    def _check_rollback(self, look: Look, pending: Instant, in_metadata: bool) -> None:
        compacted = look.metadata.hudi.completed("compaction")
        if in_metadata and any(each.requested >= pending.requested for each in compacted):
            raise LeftOutError("Hudi could not roll it back: the metadata table was compacted since")

    def _compacted(self, look: Look, pending: Instant, is_cut: bool = False) -> Write:
        """The base files, whole or cut off."""
        bench = self._bench
        plan = bench.table(look).plan(pending)
        instants.start(bench.storage, pending.requested, "compaction")
        write = Write(pending.requested, "compaction", "COMPACT", {}, frozenset(), token=bench.token())
        operations = plan["operations"]
        made = operations[: len(operations) // 2 + 1] if is_cut else operations
        for each in made:
            group = (each["partitionPath"], each["fileId"])
            names = [*([each["dataFilePath"]] if each["dataFilePath"] else []), *each["deltaFilePaths"]]
            rows = bench.rows_of(look, group, names)
            bench.base_file(write, group, rows, is_cut and each is made[-1])
        return write

    def _after(self, look: Look, instant: str) -> str:
        """A completion time; the clock may have jumped to before the plan's, then nothing completes."""
        time = self._bench.instant(look)
        if time <= instant:
            raise LeftOutError("its clock is behind the plan")
        return time

    def _listed_after(self, look: Look, instant: str) -> str:
        """A completion time in the metadata table at which its files are listed."""
        time = self._after(look, instant)
        if not self._bench.is_listed(look, time):
            raise LeftOutError("its clock is behind a compaction of the metadata table")
        return time

    # ------------------------------------------------------------ clustering

    def plan_clustering(self, look: Look, day: str) -> str:
        """Schedules all file groups of a partition."""
        bench, table = self._bench, self._bench.table(look)
        groups = [
            each
            for each in sorted(table.read_slices())
            if each[0] == day and each not in look.timeline.scheduled
        ]
        instant = bench.instant(look)
        if not groups or look.timeline.hudi.pending("clustering"):
            raise LeftOutError("no file group in the partition, or another one is scheduled")
        if not bench.is_sound(look, instant, groups, ()):
            raise LeftOutError("its clock is behind what it would replace")
        plan = encode_container("requested-replace-metadata", _clustering_plan(table.read_slices(), groups))
        instants.request(bench.storage, instant, "clustering", plan)
        bench.clock.wait()
        return instant

    def run_clustering(self, look: Look) -> None:
        """Carries the scheduled one out, unless a commit changed one of its file groups since."""
        look, write = self._clustering(look)
        self._clustered(look, write)
        self._writes.commit_metadata(write, self._after(look, write.instant))
        self._writes.commit_data(write, self._after(look, write.instant))
        self._bench.clock.wait()

    def fail_clustering(self, look: Look, in_metadata: bool) -> str:
        """Dies as a compaction does (`fail_compaction`)."""
        look, write = self._clustering(look)
        self._check_rollback(look, look.timeline.hudi.instants[write.instant], in_metadata)
        completion = self._after(look, write.instant)
        self._clustered(look, write, is_cut=not in_metadata)
        if in_metadata:
            self._writes.commit_metadata(write, completion)
        return write.instant

    def _clustering(self, look: Look) -> tuple[Look, Write]:
        """The scheduled one, with nothing written yet."""
        bench = self._bench
        look, pending = self._scheduled(look, "clustering")
        instant = pending.requested
        groups = sorted(group for group, by in look.timeline.clustered.items() if by == instant)
        known = frozenset(
            each.requested for each in look.timeline.hudi.completed() if str(each.completion) <= instant
        )
        write = Write(instant, "clustering", "CLUSTER", {}, known, groups=set(groups), token=bench.token())
        self._writes.check_conflicts(write, look)
        keys = [key for key, place in look.content.indexed.items() if place in write.groups]
        if not bench.is_sound(look, self._after(look, instant), groups, keys):
            raise LeftOutError("its clock is behind what it would replace")
        for group in groups:
            write.replaced.setdefault(group[0], []).append(group[1])
        return look, write

    def _clustered(self, look: Look, write: Write, is_cut: bool = False) -> None:
        """The rows in new file groups; cut off: half of them in one, and the other half's file cut."""
        instants.start(self._bench.storage, write.instant, "clustering")
        rows: dict[str, dict[str, Row]] = {}
        for key, row in look.content.rows.items():
            if look.content.places[key] in write.groups:
                rows.setdefault(row.day, {})[key] = row
        for day, found in sorted(rows.items()):
            keys = sorted(found)
            whole = keys[: len(keys) // 2] if is_cut else keys
            if whole:
                self._writes.new_group(write, day, {key: found[key] for key in whole})
            if is_cut:
                rest = {key: found[key] for key in keys[len(whole) :]}
                self._writes.new_group(write, day, rest, is_cut=True)


def _clustering_plan(
    slices: dict[Group, tuple[str | None, list[str]]], groups: list[Group]
) -> dict[str, Any]:
    members = [
        {
            "dataFilePath": slices[group][0],
            "deltaFilePaths": slices[group][1],
            "fileId": group[1],
            "partitionPath": group[0],
            "bootstrapFilePath": None,
            "version": 1,
        }
        for group in groups
    ]
    inputs = {
        "slices": members,
        "metrics": {},
        "numOutputFileGroups": 1,
        "extraMetadata": {},
        "version": 1,
    }
    plan: dict[str, Any] = {
        "inputGroups": [inputs],
        "strategy": None,
        "extraMetadata": {},
        "version": 1,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": None,
    }
    return {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}, "version": 1}
