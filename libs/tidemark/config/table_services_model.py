"""The section `table_services`: compaction, cleaning and archival of the table beside the epochs."""

# ruff: noqa: RUF009 - `_field` is dataclasses.field with metadata
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from tidemark.config import values
from tidemark.config.errors import ConfigError, Problems
from tidemark.config.partial import changed
from tidemark.config.settings import setting as _field

ENABLED_BY_DEFAULT: Final = True
SHARE_BEHIND: Final = 0.5
"""Compactions that are behind are granted this part of the task slots, or `share` where that is more."""
_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_MIB: Final = 1 << 20
_TASK_MEMORY_MIN: Final = 32 * _MIB
# An epoch adds a log file to a slice, and three more may come before a decision about tagging takes effect.
# With two, a slice that is due may so have two and a half times as many soon, at which tagging rests.
_LOG_FILES_MIN: Final = 3
# A clean is a commit on both timelines and a log file of `files`, which is to be compacted and cleaned, too.
_CLEANED_FILES_MIN: Final = 10


class ServicesRun(Enum):
    """Where the merges of compactions run."""

    WRITER = "writer"
    """In the writer's Spark application, beside the epochs."""
    SEPARATE = "separate"
    """In a process of its own: `tidemark services serve`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCompactionConfig:
    """When the metadata table is compacted."""

    enabled: bool = _field(values.boolean, True)
    log_ratio: float = _field(values.number(0.01, 100.0), 0.3)
    """Compact when its log files have this part of the bytes of its base files."""
    ratio_from_bytes: int = _field(values.size_bytes, _MIB, key="ratio_from")
    """Below so many bytes of log files their part does not count."""
    log_files: int = _field(values.integer(1, 100_000), 120)
    """Compact when a shard has so many log files."""
    min_interval_ms: int = _field(values.duration_ms, _MINUTE, key="min_interval")
    """How long at least from the end of one compaction to the next."""
    max_age_ms: int = _field(values.duration_ms, 15 * _MINUTE, key="max_age")
    """Compact at the latest so long after the first log file: archival waits for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCompactionConfig:
    """Which file groups of a MERGE_ON_READ table are compacted, and how many at once."""

    enabled: bool = _field(values.boolean, True)
    log_ratio: float = _field(values.number(0.01, 100.0), 0.5)
    """Compact a file group when its log files have this part of the bytes of its base file, and 1 MiB."""
    log_bytes: int = _field(values.size_bytes, 64 * _MIB)
    """Compact a file group with so many bytes of log files."""
    log_files: int = _field(values.integer(1, 100_000), 40)
    """Compact a file group with so many log files."""
    log_age_ms: int = _field(values.duration_ms, 30 * _MINUTE, key="log_age")
    """Compact a file group whose oldest log file has this age."""
    min_interval_ms: int = _field(values.duration_ms, 10 * _SECOND, key="min_interval")
    """How long at least from the end of one compaction to the next."""
    max_groups: int = _field(values.integer(1, 10_000), 64)
    """File groups of one compaction."""
    max_bytes: int = _field(values.size_bytes, 4096 * _MIB)
    """Bytes of base and log files that one compaction reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanConfig:
    """When superseded files are deleted."""

    enabled: bool = _field(values.boolean, True)
    retain_ms: int = _field(values.duration_ms, 60 * _MINUTE, key="retain")
    """How long files stay after readers have seen what supersedes them: queries, time travel and incremental
    readers that are slower lose their files.
    """
    interval_ms: int = _field(values.duration_ms, 5 * _MINUTE, key="interval")
    """How long from one clean to the next."""
    max_files: int = _field(values.integer(1, 1_000_000), 2_000)
    """Files that one clean deletes. When more may be deleted, the next clean follows at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveConfig:
    """How many instants stay on the active timelines. Incremental readers look there."""

    enabled: bool = _field(values.boolean, True)
    min: int = _field(values.integer(10, 1_000_000), 300)
    """Write instants that stay."""
    max: int = _field(values.integer(10, 1_000_000), 600)
    """Archive when there are more."""
    batch: int = _field(values.integer(1, 100_000), 100)
    """Archive at least so many instants at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackConfig:
    """Rollback of writes that other engines left unfinished. It needs no writer."""

    enabled: bool = _field(values.boolean, True)
    interval_ms: int = _field(values.duration_ms, _MINUTE, key="interval")
    """How long from one look at the timeline to the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableServicesConfig:
    """Compaction, cleaning, archival and rollback by the coordinator, beside the epochs."""

    enabled: bool = _field(values.boolean, ENABLED_BY_DEFAULT)
    """Whether Tidemark compacts, cleans and archives the table. If not, another engine has to."""
    run: ServicesRun = _field(values.one_of(ServicesRun), ServicesRun.WRITER)
    """Where merges run: in the writer's Spark application, or by `tidemark services serve`."""
    share: float = _field(values.number(0.01, 1.0), 0.25)
    """Part of the writer's task slots that merges may take; at least one."""
    task_memory_bytes: int = _field(values.size_bytes, 256 * _MIB, key="task_memory")
    """Memory of one merge, whatever the size of the file group."""
    step_ms: int = _field(values.duration_ms, 50, key="step")
    """How long one step of a service may hold up the epochs."""
    clock_skew_ms: int = _field(values.duration_ms, _SECOND, key="clock_skew")
    """How far behind other writers' clocks may be: a service is decided only so long after its plan."""
    index_retain_ms: int | None = _field(values.duration_ms, None, key="index_retain")
    """How long superseded files of the metadata table stay; assigners that were down for longer fill their
    caches again. Not set: as `clean.retain`.
    """
    compact_index: IndexCompactionConfig = _field(
        values.section(IndexCompactionConfig), IndexCompactionConfig()
    )
    compact_data: DataCompactionConfig = _field(values.section(DataCompactionConfig), DataCompactionConfig())
    clean: CleanConfig = _field(values.section(CleanConfig), CleanConfig())
    archive: ArchiveConfig = _field(values.section(ArchiveConfig), ArchiveConfig())
    rollback: RollbackConfig = _field(values.section(RollbackConfig), RollbackConfig())

    @property
    def retained_index_ms(self) -> int:
        """How long superseded files of the metadata table stay."""
        return self.clean.retain_ms if self.index_retain_ms is None else self.index_retain_ms


def check_table_services(problems: Problems, file: Path, config: TableServicesConfig) -> TableServicesConfig:
    """Notes settings that do not fit together; returns the section with `index_retain` filled in."""

    def note(key: str, said: str) -> None:
        problems.note(ConfigError(str(file), f"table_services.{key}", said))

    with problems.gathered():
        if config.archive.max < config.archive.min + config.archive.batch:
            note("archive.max", "must be at least archive.min + archive.batch, or nothing is ever archived")
    with problems.gathered():
        if config.compact_index.max_age_ms < config.compact_index.min_interval_ms:
            note("compact_index.max_age", "must not be below compact_index.min_interval")
    for name, compaction in (("compact_index", config.compact_index), ("compact_data", config.compact_data)):
        with problems.gathered():
            if compaction.enabled and compaction.log_files < _LOG_FILES_MIN:
                said = f"must be at least {_LOG_FILES_MIN}, or tagging rests until each compaction is done"
                note(f"{name}.log_files", said)
    with problems.gathered():
        if config.clean.enabled and config.clean.max_files < _CLEANED_FILES_MIN:
            said = f"must be at least {_CLEANED_FILES_MIN}: each clean makes commits and files itself"
            note("clean.max_files", said)
    with problems.gathered():
        if config.task_memory_bytes < _TASK_MEMORY_MIN:
            note("task_memory", f"must be at least {_TASK_MEMORY_MIN // _MIB}MiB: a merge holds whole blocks")
    with problems.gathered():
        if config.retained_index_ms < config.clean.retain_ms:
            note("index_retain", "must not be below clean.retain: readers of the table read its index, too")
        config = changed(config, index_retain_ms=config.retained_index_ms)
    return config
