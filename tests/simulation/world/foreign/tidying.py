"""What makes room: clean by the policies of Hudi, and archival."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq

from tests.hudi_rules import cleaning
from tests.hudi_rules.archiving import Keep, to_archive
from tests.hudi_rules.documents import Document
from tests.hudi_rules.slices import parse_data_file
from tests.hudi_rules.table import newest_manifest
from tests.hudi_rules.timeline import Instant
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import Bench
from tests.simulation.world.foreign.undoing import Undoing
from tests.simulation.world.foreign.writes import LeftOutError
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline.avro_container import encode_container


class Tidying:
    """Raises LeftOutError for what Hudi would not do now."""

    def __init__(self, bench: Bench, undoing: Undoing) -> None:
        self._bench, self._undoing = bench, undoing

    def plan_clean(self, look: Look, policy: str, keep: int) -> None:
        """``keep``: commits, versions or, by time, seconds."""
        bench, table = self._bench, self._bench.table(look)
        if look.timeline.hudi.pending("clean"):
            raise LeftOutError("another one is planned")
        if policy == "commits":
            plan = cleaning.plan_by_commits(table, keep)
        elif policy == "versions":
            plan = cleaning.plan_by_versions(table, keep)
        else:
            plan = cleaning.plan_by_time(table, bench.clock.before(keep * 1_000))
        if plan is None:
            raise LeftOutError("nothing to clean")
        groups = {
            (partition, file.file_id)
            for partition, names in plan.files.items()
            for name in names
            if (file := parse_data_file(name)) is not None
        }
        instant = bench.instant(look)
        if not bench.is_sound(look, instant, groups, ()):
            raise LeftOutError("its clock is behind what it would delete")
        paths = {p: [join_path(p, name) for name in names] for p, names in plan.files.items()}
        document = _clean_plan(plan, paths, table.timeline.savepoints)
        instants.request(bench.storage, instant, "clean", document)

    def run_clean(self, look: Look) -> None:
        """Carries the planned one out, whatever was committed since."""
        bench = self._bench
        pending = look.timeline.hudi.pending("clean")
        if not pending:
            raise LeftOutError("none is planned")
        if pending[0].requested in look.metadata.hudi.instants:
            self._undoing.roll_back_in_metadata(look, pending[0].requested)
            look = bench.look()
        instant, plan = pending[0].requested, bench.table(look).plan(pending[0])
        in_metadata, in_data = (bench.instant(look) for _ in range(2))
        if in_metadata <= instant:
            raise LeftOutError("its clock is behind the plan")
        if not bench.is_listed(look, in_metadata):
            raise LeftOutError("its clock is behind a compaction of the metadata table")
        if not pending[0].inflight:
            instants.start(bench.storage, instant, "clean")
        files: dict[str, list[str]] = {}
        for partition, found in plan["filePathsToBeDeletedPerPartition"].items():
            for each in found:
                # A plan of Tidemark's has whole paths, as Hudi's have.
                bench.storage.delete(each["filePath"].removeprefix(f"{bench.storage.base_uri}/"))
                files.setdefault(partition, []).append(each["filePath"].rpartition("/")[2])
            bench.storage.sync_dir(partition)
        changes = [FileChange(p, name, None) for p, names in files.items() for name in names]
        bench.delta_commit(instant, changes, {}, in_metadata)
        instants.complete(bench.storage, instant, "clean", in_data, _clean_metadata(plan, files, instant))
        bench.clock.wait()

    # ------------------------------------------------------------ archival

    def archive(self, look: Look, least: int) -> None:
        """Moves all but so many of the newest writes into the history."""
        bench = self._bench
        # As little as Hudi can be told to keep: cleans count versions, compactions go by time.
        keep = Keep(least, least, commits=None, deltas=None)
        table = bench.table(look)
        old = to_archive(table, look.metadata.hudi, keep)
        if not old:
            raise LeftOutError("nothing to archive")
        gone = {each.requested for each in old}
        if any(by in gone for group, by in table.replaced.items() if group in table.groups):
            raise LeftOutError("it would show replaced file groups again")
        self._write_history(old)
        for each in old:
            # First what tells of its beginning: a completed file alone still counts.
            instants.delete(bench.storage, each.requested)

    def _write_history(self, old: list[Instant]) -> None:
        """As Hudi does, also beside an archival of ours that died: what is there of that name is written
        again.
        """
        storage, folder = self._bench.storage, instants.DATA
        history = join_path(folder, "history")
        version, archived = newest_manifest(storage.file_names, storage.memory.read, history) or 0, []
        if version:
            archived = json.loads(storage.memory.read(f"{history}/manifest_{version}"))["files"]
        name = f"{old[0].requested}_{old[-1].requested}_0.parquet"
        plans = [f"{folder}/{each.requested}.{each.action}.requested" for each in old]
        table = pa.table(
            {
                "instantTime": [each.requested for each in old],
                "completionTime": [each.completion for each in old],
                "action": [each.word for each in old],
                "metadata": [storage.memory.read(f"{folder}/{each.name}") for each in old],
                "plan": [storage.memory.read(path) if storage.exists(path) else None for path in plans],
                "version": pa.array([1] * len(old), pa.int32()),
            }
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        content = sink.getvalue().to_pybytes()
        archived = [each for each in archived if each["fileName"] != name]
        archived.append({"fileName": name, "fileLen": len(content)})
        storage.replace(f"{history}/{name}", content)
        storage.replace(f"{history}/manifest_{version + 1}", json.dumps({"files": archived}).encode())
        storage.replace(f"{history}/_version_", str(version + 1).encode())


def _clean_plan(plan: cleaning.CleanPlan, paths: dict[str, list[str]], saved: frozenset[str]) -> bytes:
    retained = plan.retained
    document = {
        "earliestInstantToRetain": None
        if retained is None
        else {"timestamp": retained.requested, "action": retained.action, "state": "COMPLETED"},
        "lastCompletedCommitTimestamp": "",
        "policy": plan.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [{"filePath": path, "isBootstrapBaseFile": False} for path in found]
            for partition, found in paths.items()
        },
        "partitionsToBeDeleted": list(plan.partitions),
        # What a clean kept for a savepoint holds archival back until the next clean.
        "extraMetadata": {"savepointed_timestamps": ",".join(sorted(saved))} if saved else {},
    }
    return encode_container("cleaner-plan", document)


def _clean_metadata(plan: Document, files: dict[str, list[str]], instant: str) -> bytes:
    partitions = {
        partition: {
            "partitionPath": partition,
            "policy": plan["policy"],
            "deletePathPatterns": names,
            "successDeleteFiles": names,
            "failedDeleteFiles": [],
            "isPartitionDeleted": partition in plan["partitionsToBeDeleted"],
        }
        for partition, names in files.items()
    }
    document = {
        "startCleanTime": instant,
        "timeTakenInMillis": 1,
        "totalFilesDeleted": sum(len(names) for names in files.values()),
        "earliestCommitToRetain": (plan["earliestInstantToRetain"] or {}).get("timestamp", ""),
        "lastCompletedCommitTimestamp": "",
        "partitionMetadata": partitions,
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": {},
    }
    return encode_container("clean-metadata", document)
