"""Compaction of the metadata table: planned, carried out later, cut off in the middle.

All file groups with log files are compacted, those of `files` like those of the record index, each from the
files that the plan names. Whoever writes the metadata table next carries a plan out first, and before that
takes back what a dead one left of it.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from tests.hudi_rules.slices import groups_of, slices_of
from tests.hudi_rules.table import HudiTable
from tests.hudi_rules.timeline import Instant
from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import Bench
from tests.simulation.world.foreign.services import METRICS
from tests.simulation.world.foreign.undoing import Undoing
from tests.simulation.world.foreign.writes import LeftOutError
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.file_group.write_stats import new_base_file_stat
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table.partitions.files import ALL_PARTITIONS_KEY, FilesRecord
from tidemark.hudi_format.metadata_table.record_schema import (
    RECORD_TYPE_ALL_PARTITIONS,
    RECORD_TYPE_FILES,
    metadata_record_schema,
)
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline.avro_records import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)
from tidemark.hudi_format.timeline.service_records import (
    CompactionOperation,
    RequestedCompaction,
    encode_compaction_plan,
)

_TABLE: Final = ".hoodie/metadata"
_FILES: Final = "files"


class IndexCompaction:
    """Raises LeftOutError for what Hudi would not do now."""

    def __init__(self, bench: Bench, undoing: Undoing) -> None:
        self._bench, self._undoing = bench, undoing

    def is_pending(self, look: Look) -> bool:
        """Whether there is a plan."""
        return bool(look.metadata.hudi.pending("compaction"))

    def plan(self, look: Look) -> None:
        """Schedules all file groups with log files."""
        bench, metadata = self._bench, look.metadata.hudi
        instant = bench.instant(look)
        if self.is_pending(look):
            raise LeftOutError("another one is scheduled")
        half = [each for each in look.timeline.hudi.pending() if metadata.completion(each.requested)]
        if half:
            raise LeftOutError(f"{half[0].requested} is completed in the metadata table alone")
        operations = []
        for partition in bench.partitions():
            names = bench.storage.file_names(join_path(_TABLE, partition))
            for (_, file_id), files in sorted(groups_of({partition: names}).items()):
                slices = slices_of(files, metadata, instant)
                if slices[-1].instant != instant:
                    raise LeftOutError("its clock is behind the index")
                newest = slices[-2] if len(slices) > 1 else None
                if newest is None or not newest.logs:
                    continue
                operations.append(
                    CompactionOperation(
                        partition_path=partition,
                        file_id=file_id,
                        base_instant=newest.instant,
                        log_files=tuple(newest.logs),
                        base_file=newest.base,
                        metrics=dict.fromkeys(METRICS, 1.0),
                    )
                )
        if not operations:
            raise LeftOutError("nothing was written since the last one")
        plan = encode_compaction_plan(RequestedCompaction(operations=tuple(operations)))
        instants.request(bench.storage, instant, "compaction", plan, instants.METADATA)

    def run(self, look: Look, clean: bool) -> None:
        """Carries the plan out, whatever was committed since; ``clean``: what it replaced goes."""
        bench = self._bench
        look, pending = self._scheduled(look)
        completion = self._after(look, pending)
        stats = self._compacted(look, pending)
        metadata = CommitMetadata(write_stats=group_stats(stats), compacted=True, operation_type="COMPACT")
        content = encode_commit_metadata(metadata)
        root = instants.METADATA
        instants.complete(bench.storage, pending.requested, "compaction", completion, content, root)
        if clean:
            self._clean(bench.look(), pending.requested)
        bench.clock.wait()

    def fail(self, look: Look) -> None:
        """Dies with half of the base files made, the last of these not wholly."""
        look, pending = self._scheduled(look)
        self._after(look, pending)
        self._compacted(look, pending, is_cut=True)

    def roll_back(self, look: Look) -> None:
        """Takes back what a dead executor left; its plan waits for the next one."""
        pending = [each for each in look.metadata.hudi.pending("compaction") if each.inflight]
        if not pending:
            raise LeftOutError("nobody began to carry it out")
        self._undoing.roll_back_index_compaction(look, pending[0])

    def _scheduled(self, look: Look) -> tuple[Look, Instant]:
        pending = look.metadata.hudi.pending("compaction")
        if not pending:
            raise LeftOutError("none is scheduled")
        if pending[0].inflight:
            self.roll_back(look)
            look = self._bench.look()
        return look, pending[0]

    def _after(self, look: Look, pending: Instant) -> str:
        time = self._bench.instant(look)
        if time <= pending.requested:
            raise LeftOutError("its clock is behind the plan")
        return time

    def _compacted(self, look: Look, pending: Instant, is_cut: bool = False) -> list[WriteStat]:
        """The base files, whole or cut off."""
        storage, token, stats = self._bench.storage, self._bench.token(), []
        table = HudiTable(storage.file_names, storage.memory.read, {}, instants.METADATA)
        operations = table.plan(pending)["operations"]
        instants.start(storage, pending.requested, "compaction", root=instants.METADATA)
        made = operations[: len(operations) // 2 + 1] if is_cut else operations
        for each in made:
            partition, file_id = each["partitionPath"], each["fileId"]
            names = [*([each["dataFilePath"]] if each["dataFilePath"] else []), *each["deltaFilePaths"]]
            entries = [
                entry
                for name in names
                for entry in look.reader.index_entries(join_path(_TABLE, partition, name))
            ]
            merged = _listing(entries) if partition == _FILES else _newest(entries)
            keys = sorted(merged, key=str.encode)
            values = pa.array([merged[key] for key in keys], pa.binary())
            data = write_hfile(pa.array(keys, pa.string()), values, metadata_record_schema())
            name = str(BaseFileName(file_id, token, pending.requested, "hfile"))
            cut = is_cut and each is made[-1]
            storage.create(join_path(_TABLE, partition, name), data[: len(data) // 2] if cut else data)
            stats.append(new_base_file_stat(partition, file_id, name, len(data), len(keys)))
        return stats

    def _clean(self, look: Look, compaction: str) -> None:
        """The slices before the compaction's."""
        storage, metadata = self._bench.storage, look.metadata.hudi
        for partition in self._bench.partitions():
            folder = join_path(_TABLE, partition)
            for names in groups_of({partition: list(storage.file_names(folder))}).values():
                slices = slices_of(names, metadata)
                if slices[-1].instant != compaction:
                    continue
                for each in slices[:-1]:
                    for name in each.files:
                        storage.delete(join_path(folder, name))
            storage.sync_dir(folder)


def _newest(entries: list[tuple[str, Any]]) -> dict[str, bytes]:
    """Key -> value of the newest entry, deleted ones dropped."""
    found: dict[str, bytes] = {}
    for key, value in entries:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value[0]
    return found


def _listing(entries: list[tuple[str, Any]]) -> dict[str, bytes]:
    """Key -> value of the union of all records of `files`, tombstones dropped."""
    found: dict[str, dict[str, int]] = {}
    for key, value in entries:
        if value is None:
            found.pop(key, None)
            continue
        live = found.setdefault(key, {})
        for name, (size, is_deleted) in decode.listed_files(*value).items():
            if is_deleted:
                live.pop(name, None)
            else:
                live[name] = max(size, live.get(name, 0))
    kinds = {ALL_PARTITIONS_KEY: RECORD_TYPE_ALL_PARTITIONS}
    return {key: FilesRecord(live).encode(kinds.get(key, RECORD_TYPE_FILES)) for key, live in found.items()}
