"""The checks and the printed lines of `tidemark table rebuild-index`; the services' doors do the work."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any, Final

from tidemark.cli.reachable_kafka import has_kafka, reachable_kafka
from tidemark.cli.tables import refuse_while_served_elsewhere, refuse_while_serving
from tidemark.commit_coordinator.offline.index_rebuild import (
    Before,
    BuildRequest,
    RebuiltIndex,
    look_before,
    rebuild_index,
)
from tidemark.config import TableConfigFile
from tidemark.console.errors import CliError
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_services.rebuilding.documents import ShardFile
from tidemark.hudi_format.table_services.rebuilding.numbers import SHARD_ENTRIES_MAX
from tidemark.hudi_format.table_services.rebuilding.switching import RebuildFailpoint
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_writer.offline import IndexBuild, build_index

_PURPOSE: Final = "tidemark table rebuild-index"
_MIB: Final = 1 << 20


def rebuild(
    config: TableConfigFile, shards: int, dry_run: bool, say: Callable[[str], None]
) -> tuple[dict[str, Any], list[str]]:
    """Rebuilds the index of a table whose services do not run; returns the answer as document and lines.
    ``dry_run``: only checks and estimates.

    Raises CliError while services of the table run, or where a disk has not enough room, and as the functions
    of both doors.
    """
    clock = SystemClock()
    refuse_while_serving(config)
    refuse_while_served_elsewhere(config, clock, say)
    if not has_kafka(config):
        raise CliError(
            f"no `tidemark run` was ever active on {config.state.path} (state.path): the table has no ledger "
            "yet. Start Tidemark once, and stop it again"
        )
    storage = open_storage(config.table.path)
    with reachable_kafka(config, clock, say, _PURPOSE) as reachable:
        client = ConfluentKafkaClient.from_config(reachable, clock=clock)
        before = look_before(reachable, client, storage, shards)
        lines = [*_estimate_lines(before, shards), *_settings_lines(config, before, shards)]
        refuse_without_room(before, storage.base_uri, tempfile.gettempdir())
        if dry_run:
            return _document(before, shards, None), [*lines, "nothing was changed (--dry-run)"]
        for line in lines:
            say(line)
        failpoints = FailpointRegistry.from_environment(RebuildFailpoint, os.environ)

        def build(request: BuildRequest) -> list[ShardFile]:
            plan = request.plan
            paths = [plan.shard_path(shard) for shard in range(plan.shards)]
            of_job = IndexBuild(request.schema, plan.instant, paths, request.token, plan.slices)
            return build_index(reachable, of_job, say)

        done = rebuild_index(
            reachable, client, storage, clock, SystemIds(), shards, build, say, failpoints.hit
        )
    return _document(before, shards, done), [
        f"the record index has {done.shards} shards (before: {done.former}) and {done.entries} entries, each "
        "compared with its row's file group",
        *_settings_lines(config, before, shards),
    ]


def refuse_without_room(before: Before, table: str, scratch: str) -> None:
    """Raises CliError where the disk of the table or of temporary files has not what the estimate says."""
    needed = before.estimate
    for path, size, setting in (
        (table, needed.index_bytes, "table.path"),
        (scratch, needed.scratch_bytes, "TMPDIR"),
    ):
        free = shutil.disk_usage(path).free
        if free < size:
            raise CliError(
                f"{path} ({setting}) has {free // _MIB} MiB free, and a rebuild needs about "
                f"{size // _MIB} MiB there: make room, or set TMPDIR to another disk for the sorting"
            )


def _estimate_lines(before: Before, shards: int) -> list[str]:
    found = before.estimate
    lines = [
        f"the record index has {before.shards} shards and about {found.entries} entries; "
        f"{found.entries // shards} in each of {shards}",
        f"needs about {found.index_bytes // _MIB + 1} MiB in the table's folder, and "
        f"{found.scratch_bytes // _MIB + 1} MiB in {tempfile.gettempdir()} (TMPDIR) while it runs",
    ]
    if found.entries > shards * SHARD_ENTRIES_MAX:
        lines.append(f"warning: more than {SHARD_ENTRIES_MAX} entries a shard is much: choose more shards")
    return lines


def _settings_lines(config: TableConfigFile, before: Before, shards: int) -> list[str]:
    index = config.table.index
    if index.shards == shards and index.lanes == before.lanes:
        return []
    return [
        f"before the next start set in {config.file} table.index: {{shards: {shards}, lanes: {before.lanes}}}"
        ", and both filegroup counts in the options of other writers (`tidemark table describe`)"
    ]


def _document(before: Before, shards: int, done: RebuiltIndex | None) -> dict[str, Any]:
    return {
        "former_shards": before.shards,
        "shards": shards,
        "lanes": before.lanes,
        "estimated_entries": before.estimate.entries,
        "estimated_bytes": before.estimate.index_bytes,
        "estimated_scratch_bytes": before.estimate.scratch_bytes,
        "rebuilt": done is not None,
        "entries": done.entries if done is not None else None,
        "instant": done.instant if done is not None else None,
    }
