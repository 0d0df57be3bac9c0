"""The writer's Spark session, and the one kind of job that it runs: tasks in, outcomes out.

A job is one stage of Python tasks over an RDD of task bytes. Spark chooses executors for the tasks, retries
them, and runs them speculatively if it is set to; `task_entry` does their work. The settings were chosen by
measurement (docs/adr/0003-writer-engine.md). A table's section `spark:` wins over them.

Jobs of table services run beside those of epochs, from a thread, in a pool and a job group of their own. A
pool bounds nothing: a running task keeps its slot. So the caller bounds how many tasks it has at once, and a
session on this machine gets that many slots more than `spark.master` says.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home as find_spark_home
from pyspark.sql import SparkSession

from tidemark.config.spark_master import DEFAULT_MASTER, SparkMaster, parse_master
from tidemark.config.table_services_model import SHARE_BEHIND
from tidemark.stream_runtime.platform import class_data
from tidemark.stream_runtime.platform.jars import class_path
from tidemark.stream_runtime.platform.java import JavaRuntime
from tidemark.stream_runtime.platform.spark_env import (
    JAVA_OPTIONS,
    REDACTION,
    hide_secrets,
    spark_environment,
    spark_settings,
)
from tidemark.stream_writer import cluster
from tidemark.stream_writer.errors import EngineFailedError, EngineLostError, EngineSettingError
from tidemark.stream_writer.executor_archive import write_archive
from tidemark.stream_writer.merge_tasks import merge_tasks
from tidemark.stream_writer.task_entry import (
    BIN_RUNNER,
    ROWS_RUNNER,
    SHARDS_RUNNER,
    BinEntry,
    RowsEntry,
    ShardsEntry,
    TaskEntry,
)
from tidemark.stream_writer.writer_settings import WRITER_SETTINGS

CLASS_PATH: Final = "spark.driver.extraClassPath"
JARS: Final = "spark.jars"
TASK_ATTEMPTS_MAX: Final = 4
JOB_TIMEOUT_S: Final = 600.0
_LOCAL_MASTER: Final = re.compile(r"local(?:\[(\d+|\*)(?:,(\d+))?\])?")
_HEAP: Final = re.compile(r"(\d+)([kmgt]?)", re.IGNORECASE)
_HEAP_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Spark refuses to start with less (UnifiedMemoryManager: 1.5 times the memory that it reserves).
_HEAP_MIN: Final = 450 << 20
_SPARKS_MEMORY_KEY: Final = re.compile(
    r"memory \d+ must be at least (\d+).*?(spark\.\w+\.memory)", re.DOTALL | re.I
)
_GROUP: Final = "tidemark-epoch"
_SERVICES_GROUP: Final = "tidemark-services"
_REBUILD_GROUP: Final = "tidemark-rebuild"
_TELL_EVERY_S: Final = 5.0
_SERVICES_POOL: Final = "services"
_MESSAGE_CHARS_MAX: Final = 4_000

# The writer rests on these, so the section spark: may not set them.
_OURS: Final[Mapping[str, str]] = {
    # The workers keep their connections to Kafka; a new worker for each task would open them each time.
    "spark.python.worker.reuse": "true",
    "spark.task.maxFailures": str(TASK_ATTEMPTS_MAX),
}


def session_settings(
    section: Mapping[str, str], jars: Sequence[Path], scratch: Path, share: float = 0.0
) -> dict[str, str]:
    """All settings of the session: the platform's, the writer's, then the table's section `spark:`. `share`
    is the part of the slots that table services may take, 0 if they do not run here.

    A master `local[N]` becomes `local[N,F]`, because Spark's local mode takes the limit of task failures only
    from there, and `jars` come behind Spark's own on the JVM's class path, where a class data archive covers
    them and Spark does not copy them. For other masters the settings name the archive with our code, which
    `start_engine` makes.
    Raises EngineSettingError for a key that the writer rests on, a master that it cannot use, and a heap with
    which Spark could not start.
    """
    for key in sorted(_OURS.keys() & section.keys()):
        raise EngineSettingError(f"spark.{key.removeprefix('spark.')} is set by Tidemark itself: remove it")
    ours = spark_settings(scratch)
    settings = {**ours, **WRITER_SETTINGS, **section, **_OURS}
    if REDACTION in section:
        settings[REDACTION] = f"(?:{section[REDACTION]})|{ours[REDACTION]}"
    if JAVA_OPTIONS in section:
        # Added to ours, which keep Java's temporary files in the state folder. Of two that are equal Java
        # takes the last.
        settings[JAVA_OPTIONS] = f"{ours[JAVA_OPTIONS]} {section[JAVA_OPTIONS]}"
    _check_heap(settings["spark.driver.memory"])
    master = read_master(section)
    if master.is_local:
        first = section.get(CLASS_PATH, f"{_spark_jars()}/*")
        settings[CLASS_PATH] = f"{first}:{class_path(jars)}" if jars else first
    else:
        settings = {JARS: ",".join(map(str, jars)), **settings}
        settings = cluster.lay_over(settings, section, master, scratch / cluster.ARCHIVE)
    if share:
        settings.setdefault("spark.scheduler.mode", "FAIR")
    local = _LOCAL_MASTER.fullmatch(settings["spark.master"])
    if local and (local[1] or share):
        slots = local[1] or "1"
        if share:
            slots = str(_local_slots(slots) + service_slots(_local_slots(slots), share))
        settings["spark.master"] = f"local[{slots},{local[2] or TASK_ATTEMPTS_MAX}]"
    if not settings.get(JARS):
        settings.pop(JARS, None)
    return settings


def service_slots(slots: int, share: float) -> int:
    """How many tasks of table services may run at once beside `slots` tasks of epochs; at least one."""
    return merge_tasks(slots, slots, max(share, SHARE_BEHIND), is_behind=True)


def _local_slots(text: str) -> int:
    return len(os.sched_getaffinity(0)) if text == "*" else int(text)


def read_master(section: Mapping[str, str]) -> SparkMaster:
    """The master that `spark.master` names. Raises EngineSettingError for one that the writer cannot use."""
    try:
        return parse_master(section.get("spark.master", DEFAULT_MASTER))
    except ValueError as error:
        raise EngineSettingError(f"spark.master: {error}") from None


class SparkEngine:
    """A Spark session that runs the jobs of epochs, and those of table services. One thread calls
    `run_epoch_job`, another one `run_bins`; others may cancel.
    """

    def __init__(self, session: SparkSession, runner: str, slots: int | None = None) -> None:
        """`runner` names the function of the tasks as `module:function`; the workers import it. `slots`: how
        many tasks of epochs run at once; None: as many as Spark says.
        """
        self._slots = slots
        self._session = session
        self._context: SparkContext = session.sparkContext
        self._entry = TaskEntry(runner, TASK_ATTEMPTS_MAX)
        self._description = "tidemark epoch"

    def describe(self, text: str) -> None:
        """Sets the description that Spark's web page shows for the next jobs."""
        self._description = text

    @property
    def session(self) -> SparkSession:
        """The Spark session."""
        return self._session

    @property
    def slots(self) -> int:
        """How many tasks of epochs run at once."""
        return self._slots or int(self._context.defaultParallelism)

    @property
    def merges_max(self) -> int:
        """How many merges leave epochs a slot. A local session has slots for merges alone, a cluster not."""
        return self.slots if self._slots else max(self.slots - 1, 1)

    def run_epoch_job(
        self, tasks: Sequence[bytes], partitions: int, timeout_s: float = JOB_TIMEOUT_S
    ) -> list[bytes]:
        """Runs all tasks and returns their encoded TaskOutcomes, in the tasks' order.

        At most `partitions` Spark tasks share them evenly. Raises EngineFailedError if Spark gave the job up
        or it took longer than `timeout_s`, EngineLostError if the session is gone.
        """
        if not tasks:
            return []
        expired = threading.Event()
        timer = threading.Timer(timeout_s, self._expire, (expired,))
        timer.daemon = True
        timer.start()
        try:
            self._context.setJobGroup(_GROUP, self._description, interruptOnCancel=True)
            slices = self._context.parallelize(tasks, min(partitions, len(tasks)))
            outcomes: list[bytes] = slices.mapPartitions(self._entry).collect()
        except (Py4JError, OSError) as error:
            when = f" after {timeout_s:.0f} s{self._executors()}" if expired.is_set() else ""
            raise self._failure(error, when) from error
        finally:
            timer.cancel()
        if len(outcomes) != len(tasks):
            raise EngineFailedError(f"Spark returned {len(outcomes)} outcomes of {len(tasks)} tasks")
        return outcomes

    def cancel(self) -> None:
        """Cancels the running job, if there is one; its `run_epoch_job` raises EngineFailedError."""
        self._context.cancelJobGroup(_GROUP)

    def run_bins(self, bins: Sequence[bytes]) -> list[bytes]:
        """Runs bins of table services at once, each as a task; returns their reports in the same order.

        A bin has no limit of time here: its child process has (`table_services.in_child`). Raises
        EngineFailedError if Spark gave the job up, EngineLostError if the session is gone.
        """
        try:
            # Both are kept per thread, because PySpark's driver has a JVM thread for each thread of Python.
            self._context.setLocalProperty("spark.scheduler.pool", _SERVICES_POOL)
            self._context.setJobGroup(_SERVICES_GROUP, "tidemark table services", interruptOnCancel=True)
            work = self._context.parallelize(bins, len(bins))
            reports: list[bytes] = work.mapPartitions(BinEntry(BIN_RUNNER)).collect()
        except (Py4JError, OSError) as error:
            raise self._failure(error, "") from error
        if len(reports) != len(bins):
            raise EngineFailedError(f"Spark returned {len(reports)} reports of {len(bins)} bins")
        return reports

    def run_rebuild(
        self, job: bytes, work: Sequence[bytes], tasks: int, say: Callable[[str], None]
    ) -> list[bytes]:
        """Runs both halves of an index rebuild: ``work`` is file slices, each of which becomes a task;
        ``tasks``: of the second half. Returns the documents of all shards. ``say`` is told of tasks that
        ended, on a thread of its own.

        Raises EngineFailedError if Spark gave the job up, EngineLostError if the session is gone.
        """
        ended = threading.Event()
        teller = threading.Thread(target=self._tell, args=(ended, say), name="progress", daemon=True)
        teller.start()
        try:
            self._context.setJobGroup(_REBUILD_GROUP, "tidemark index rebuild", interruptOnCancel=True)
            rows = self._context.parallelize(work, max(len(work), 1)).mapPartitions(
                RowsEntry(ROWS_RUNNER, job)
            )
            shards = ShardsEntry(SHARDS_RUNNER, job, tasks)
            # A shard is a small number, so `int` gives the task shard mod tasks.
            by_shard = rows.partitionBy(tasks, int).mapPartitionsWithIndex(shards)
            return list(by_shard.collect())
        except (Py4JError, OSError) as error:
            raise self._failure(error, "") from error
        finally:
            ended.set()
            teller.join()

    def _tell(self, ended: threading.Event, say: Callable[[str], None]) -> None:
        tracker, told = self._context.statusTracker(), ""
        while not ended.wait(_TELL_EVERY_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            text = ", ".join(
                f"{_half(stage.name)}: {stage.numCompletedTasks} of {stage.numTasks} tasks done"
                for stage in stages
                if stage is not None
            )
            if text not in ("", told):
                say(told := text)

    def cancel_bins(self) -> None:
        """Cancels the running job of table services, if there is one; its `run_bins` raises
        EngineFailedError.
        """
        self._context.cancelJobGroup(_SERVICES_GROUP)

    def stop(self) -> None:
        """Stops the session."""
        self._session.stop()

    def _expire(self, expired: threading.Event) -> None:
        expired.set()
        self.cancel()

    def _executors(self) -> str:
        """For the error of a job that timed out: a text if no executor could run it, else ""."""
        try:
            # The driver counts as one of them.
            known = int(self._context._jsc.sc().getExecutorMemoryStatus().size())
        except (Py4JError, OSError, AttributeError):
            return ""
        is_local = (self._context.master or "local").startswith("local")
        return "" if is_local or known > 1 else ", without any executor: look at the master's page and logs"

    def _failure(self, error: Exception, when: str) -> EngineFailedError | EngineLostError:
        text = str(error)[:_MESSAGE_CHARS_MAX]
        if isinstance(error, Py4JJavaError) and not self._is_stopped():
            return EngineFailedError(f"Spark gave the job up{when}: {text}")
        return EngineLostError(f"the Spark session is gone: {text or type(error).__name__}")

    def _is_stopped(self) -> bool:
        try:
            return bool(self._context._jsc.sc().isStopped())
        except (Py4JNetworkError, OSError, AttributeError):
            return True


def _half(stage: str) -> str:
    """What a stage of `run_rebuild` does. Spark names it by the call that made it."""
    return "writing shards" if stage.startswith("collect") else "reading rows"


def start_engine(
    section: Mapping[str, str],
    java: JavaRuntime,
    scratch: Path,
    runner: str,
    *,
    jars: Sequence[Path] = (),
    log: Path | None = None,
    share: float = 0.0,
) -> SparkEngine:
    """Starts the session, which takes 3 s. Sets Spark's variables in this process's environment.

    `share` is the part of the slots that table services may take, 0 if they do not run here.

    `section` is the table's section `spark:`, `scratch` a folder for Spark's temporary files and for the
    archive with our code, `jars` are added to Spark's class path. Spark's warnings go to `log` (None:
    stderr). Raises EngineSettingError.
    """
    settings = session_settings(section, jars, scratch, share)
    if CLASS_PATH not in section and read_master(section).is_local:
        options = class_data.java_options(class_data.SPARK_DRIVER, java.home, archived_jars(jars))
        settings[JAVA_OPTIONS] += "".join(f' "{option}"' for option in options)
    os.environ.update(_environment(section, java, scratch, log))
    configuration = SparkConf()
    for key, value in hide_secrets(settings, scratch).items():
        configuration.set(key, value)
    try:
        session: Any = SparkSession.builder.config(conf=configuration).getOrCreate()
    except Py4JJavaError as error:
        refused = refused_setting(str(error))
        if refused is None:
            raise
        raise refused from error
    if not read_master(section).is_local:
        cluster.put_first_on_path(session.sparkContext.environment)
    local = _LOCAL_MASTER.fullmatch(section.get("spark.master", DEFAULT_MASTER))
    return SparkEngine(session, runner, _local_slots(local[1] or "1") if local and share else None)


def archived_jars(jars: Sequence[Path]) -> list[Path]:
    """The class path of a local driver as its JVM sees it: Spark's jars in their folder's order, `jars`."""
    with os.scandir(_spark_jars()) as entries:
        return [*(Path(entry.path) for entry in entries if entry.name.endswith(".jar")), *jars]


def _spark_jars() -> Path:
    home: str = find_spark_home()  # type: ignore[no-untyped-call]
    return Path(home) / "jars"


def _environment(
    section: Mapping[str, str], java: JavaRuntime, scratch: Path, log: Path | None
) -> dict[str, str]:
    """The driver's environment variables. For executors on other machines it also checks the surroundings and
    makes the archive with our code.
    """
    master = read_master(section)
    if master.is_local:
        return spark_environment(java, scratch, log)
    cluster.check_surroundings(master, section, os.environ)
    write_archive(scratch / cluster.ARCHIVE)
    python = cluster.executor_python(section, os.environ)
    return spark_environment(java, scratch, log, python=python, loopback=master.is_loopback)


def refused_setting(text: str) -> EngineSettingError | None:
    """Our error for a text by which Spark refuses a setting as too little memory; None for other texts."""
    refusal = _SPARKS_MEMORY_KEY.search(text)
    if refusal is None:
        return None
    return EngineSettingError(
        f"{refusal[2]} is too small, Spark needs {int(refusal[1]) >> 20} MiB: set it to 512m or more in the "
        "section spark:"
    )


def _check_heap(memory: str) -> None:
    """Raises EngineSettingError for a heap with which the driver could not start. The JVM would end before
    Spark could name the setting.
    """
    size = _HEAP.fullmatch(memory.strip())
    if size is None or int(size[1]) * _HEAP_UNITS[size[2].lower()] < _HEAP_MIN:
        raise EngineSettingError(
            f"spark.driver.memory: Spark cannot start with a Java heap of {memory}: set it to 512m or more "
            "in the section spark:"
        )
