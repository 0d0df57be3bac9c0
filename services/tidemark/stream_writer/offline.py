"""The functions of the writer that the command line uses. Apart from the command that becomes the writer's
process, the command line imports no other module of the writer.

`tidemark config check` and `tidemark doctor` run the checks that the writer itself runs before it starts
Spark. `tidemark archive` makes the archive for executors. `tidemark table rebuild-index` runs its Spark job
here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.config import TableConfigFile
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.table_services.rebuilding.documents import ShardFile, whole_build
from tidemark.stream_runtime.platform.java import find_java
from tidemark.stream_writer import cluster, executor_archive
from tidemark.stream_writer.index_rebuild import RebuildJob, encode_job, job_work
from tidemark.stream_writer.java_kafka import java_settings
from tidemark.stream_writer.job import read_master, session_settings, start_engine
from tidemark.stream_writer.scratch import own_scratch

LOG: Final = "spark.log"
SCRATCH: Final = "spark"
# Small tasks, so that they can be told apart in the progress, and a lost executor costs little.
_ROW_TASKS_PER_SLOT: Final = 4
_SHARD_TASKS_PER_SLOT: Final = 2


def check_spark_settings(section: Mapping[str, str]) -> None:
    """Checks the section `spark:` by itself. Raises EngineSettingError."""
    session_settings(section, (), Path("spark"))


def check_kafka_settings(section: Mapping[str, str]) -> None:
    """Checks what the writer needs of the section `kafka:`. Raises EngineSettingError."""
    java_settings(section)


def rehearse_start(config: TableConfigFile) -> None:
    """Checks both sections together with this machine's environment and files. Raises EngineSettingError."""
    check_spark_settings(config.spark)
    check_kafka_settings(config.kafka.settings)
    master = read_master(config.spark)
    if not master.is_local:
        cluster.check_surroundings(master, config.spark, os.environ)
        cluster.with_certificates(config.kafka.settings)


@dataclass(frozen=True)
class IndexBuild:
    """A record index to be built: as `RebuildJob` has it, and the file slices whose rows it indexes."""

    schema: str
    instant: str
    paths: Sequence[str]
    token: str
    slices: Sequence[FileSlice]


def build_index(config: TableConfigFile, build: IndexBuild, say: Callable[[str], None]) -> list[ShardFile]:
    """Builds the base files of all shards as a Spark job by the section `spark:`. Starts Spark, and ends it.

    Raises EngineSettingError, EngineFailedError (with the text of the task's error), EngineLostError,
    PlatformError (no Java), CorruptFileError where the files hold other entries than came of the rows.
    """
    folder = config.state.path / "rebuild"
    with own_scratch(folder / SCRATCH) as scratch:
        java = find_java()
        engine = start_engine(config.spark, java, scratch, "", log=folder / LOG)
        try:
            job = RebuildJob(
                config.table.path,
                config.table.name,
                build.schema,
                build.instant,
                tuple(build.paths),
                build.token,
                config.table_services.task_memory_bytes,
            )
            work = job_work(build.slices, _ROW_TASKS_PER_SLOT * engine.slots)
            tasks = min(len(build.paths), _SHARD_TASKS_PER_SLOT * engine.slots)
            documents = engine.run_rebuild(encode_job(job), work, tasks, say)
        finally:
            engine.stop()
    return whole_build(documents, len(build.paths), len(work))


def write_archive(target: Path, dependencies: bool) -> int:
    """Writes the archive with the Python code that executors need, and returns its size in bytes.

    `dependencies` adds the installed packages. Raises EngineSettingError, OSError.
    """
    return executor_archive.write_archive(target, dependencies=dependencies)
