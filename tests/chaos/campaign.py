"""One round of the campaign: a fresh table under load and observation, faults step by step, then the checks.

A failure raises `ChaosError` with the seed, the schedule so far and the folder in which logs, table and
topics were left.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos import end_checks
from tests.chaos.cluster import INPUT, LANES, PARTITIONS, SHARDS, Cluster
from tests.chaos.disks import BALLAST, SmallDisk, small_disks
from tests.chaos.endings import end_all
from tests.chaos.events import Feeder, InputReader
from tests.chaos.faults import FAULTS
from tests.chaos.identities import identified
from tests.chaos.index_commands import COMMANDS_END_S, IndexCommands
from tests.chaos.index_entries import check_indexes
from tests.chaos.lane_history import InputHistory
from tests.chaos.memory_watch import MemoryWatch
from tests.chaos.schedule import Order, Step
from tests.chaos.service_counts import ended_services
from tests.chaos.settings import Settings
from tests.chaos.spark_reader import SparkReader
from tests.chaos.stand_still import told_now
from tests.chaos.table_views import TableViews, read_identified, read_rows
from tests.chaos.timeline_watch import TimelineWatch
from tests.chaos.world import Steps, Until, World
from tests.input_model import Row

_TICK_S: Final = 0.05
_START_S: Final = 180.0
_KAFKA_S: Final = 60.0
_LAG_S: Final = 60.0
_SETTLE_S: Final = 60.0
# Written by whatever there is in the end, an index that was made last included.
_LAST_COMMITS: Final = 2
_REFUSED: Final = 2
# Killed, a failpoint, replaced by a successor, ended in order.
_PROVOKED: Final = (-9, 77, 3, 0)

Say = Callable[[str], None]


class ChaosError(AssertionError):
    """The campaign found something."""


class Round:
    """A context manager for one thread: enter, `run` steps, `finish`."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self._settings, self._say = settings, say
        self._started_s = time.monotonic()
        self._done: list[Step] = []
        self.disks = _mount(settings.folder / "disks", say)
        places = {name: disk.folder for name, disk in self.disks.items()}
        try:
            self.cluster = Cluster(
                settings.folder,
                settings.table_type,
                settings.nodes,
                places,
                settings.no_spark,
                settings.services,
                settings.index.record_index,
                settings.compacts_at,
                settings.separate,
            )
        except BaseException:
            self._close_disks()
            raise
        self.timeline = TimelineWatch(self.cluster.table)
        self.memory = MemoryWatch(self.cluster.pids)
        table, log = self.cluster.table, self.cluster.logs / "index-commands.log"
        dice = (settings.seed, settings.patience, settings.index_kills, settings.rest)
        self.secondary = IndexCommands(settings.index.secondary, table, self.cluster.admin_config, log, *dice)
        self.history = InputHistory(SHARDS, LANES)
        self.counts: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.spark_views: list[TableViews] = []
        self._spark: SparkReader | None = None

    def __enter__(self) -> Round:
        settings = self._settings
        try:
            self.cluster.start()
            bootstrap = self.cluster.brokers.bootstrap
            reader = InputReader(bootstrap, INPUT, PARTITIONS, settings.by_partition)
            self._ends = InputReader(bootstrap, INPUT, PARTITIONS)
            self._read_rows = read_identified if settings.by_partition else read_rows
            seen_by = (self.cluster.table, self.timeline, reader, self.history, self._read_rows)
            self.views = TableViews(*seen_by, rest=settings.rest)
            self._spark = SparkReader(settings.folder / "spark-reader") if settings.hudi_on_spark else None
            self.spark_views = self._with_spark(bootstrap)
            self._reader = reader
            dice = (settings.seed, settings.keys, settings.rate, settings.by_partition)
            self._feeder = Feeder(bootstrap, INPUT, PARTITIONS, *dice)
            self._world = World(
                self.cluster,
                self.timeline,
                Random(settings.seed),
                settings.patience,
                lambda: self._ends.ends(_KAFKA_S * settings.patience),
                self.disks,
            )
            for thread in (self._feeder, self.timeline, self.views, self.memory):
                thread.start()
            for views in self.spark_views:
                views.start()
            self._wait(self._world.until("the first commit", lambda: self.timeline.epoch > 0, _START_S))
            self.secondary.start()
            self._wait(self._world.until("the secondary index", self.secondary.is_there, COMMANDS_END_S))
        except BaseException as error:
            try:
                # Before the end of the services, who are asked what they do.
                failure = self._failure(_told(error)) if isinstance(error, Exception) else None
            finally:
                self._abandon()
            if failure is not None:
                raise failure from error
            raise
        return self

    def _with_spark(self, bootstrap: str) -> list[TableViews]:
        if self._spark is None:
            return []
        by_partition, spark = self._settings.by_partition, self._spark
        reader = InputReader(bootstrap, INPUT, PARTITIONS, by_partition)
        history = InputHistory(SHARDS, LANES)

        def read(table: Path) -> list[Row]:
            rows = spark.read_rows(table)
            return [identified(row) for row in rows] if by_partition else rows

        return [TableViews(self.cluster.table, self.timeline, reader, history, read)]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def _abandon(self) -> None:
        try:
            self._keep()
        except OSError as error:
            self._say(f"not all was kept of the disks that go away: {error}")
        finally:
            self.close()

    def close(self) -> None:
        """Ends every process and thread of the round, each also where the end of another one fails.
        Repeatable. Raises as `end_all`.
        """
        parts = [self.memory.stop, self.secondary.end, self.timeline.end]
        if hasattr(self, "_feeder"):
            parts.append(self._feeder.end)
        if hasattr(self, "views"):
            parts += [views.end for views in (self.views, *self.spark_views)]
        if hasattr(self, "_ends"):
            parts.append(self._ends.close)
        if self._spark is not None:
            parts.append(self._spark.close)
        end_all([*parts, self.cluster.close, self._close_disks])

    def _close_disks(self) -> None:
        end_all(disk.close for disk in self.disks.values())

    # -- faults

    def run(self, step: Step) -> None:
        """All faults of the step at once, then waits until the input of that moment is committed."""
        self._done.append(step)
        self._say(f"[{self._age()}] step {len(self._done)}: {' + '.join(map(str, step))}")
        began_s = time.monotonic()
        try:
            self._all([(order, FAULTS[order.fault](self._world, order.target)) for order in step])
            self._wait(self._world.recovery())
        except Exception as error:
            raise self._failure(_told(error)) from error
        self.counts.update(order.fault for order in step)
        self.points.update(f"{order.fault} {point}" for order in step for point in order.points)
        self._say(
            f"[{self._age()}]   whole again after {time.monotonic() - began_s:.0f} s; epoch "
            f"{self.timeline.epoch}, {self.views.views} views judged ({self.views.exact} exactly)"
        )

    def _all(self, under_way: list[tuple[Order, Steps]]) -> None:
        waiting: dict[Order, tuple[Steps, Until, float]] = {}
        for order, steps in under_way:
            self._advance(order, steps, waiting)
        while waiting:
            self._tick()
            now_s = time.monotonic()
            for order, (steps, until, deadline_s) in list(waiting.items()):
                if until.holds() if until.holds is not None else now_s >= deadline_s:
                    self._advance(order, steps, waiting)
                elif now_s >= deadline_s:
                    raise AssertionError(f"{order}: waited {until.timeout_s:.0f} s for {until.what}")

    @staticmethod
    def _advance(order: Order, steps: Steps, waiting: dict[Order, tuple[Steps, Until, float]]) -> None:
        until = next(steps, None)
        if until is None:
            waiting.pop(order, None)
        else:
            waiting[order] = (steps, until, time.monotonic() + until.timeout_s)

    def _wait(self, until: Until) -> None:
        deadline_s = time.monotonic() + until.timeout_s
        while until.holds is not None and not until.holds():
            self._tick()
            if time.monotonic() >= deadline_s:
                raise AssertionError(f"waited {until.timeout_s:.0f} s for {until.what}")

    def _tick(self) -> None:
        self.cluster.tend()
        self._raise_findings()
        time.sleep(_TICK_S)

    def _raise_findings(self) -> None:
        found = self.timeline.failures + self.views.failures + self.memory.failures + self._feeder.failures
        found += self.secondary.failures + [each for views in self.spark_views for each in views.failures]
        if found:
            raise AssertionError(found[0])
        for seat in (*self.cluster.seats.values(), *self.cluster.replaced):
            if any(each.code == _REFUSED for each in seat.exits):
                # `tidemark run` would not start it again.
                raise AssertionError(f"{seat.name} ended for good: {seat.exits[-1].said}")

    # -- the end

    def finish(self) -> None:
        """Nothing breaks any more: within 60 s nothing waits, then everything is compared."""
        self._say(f"[{self._age()}] no more faults: settling")
        try:
            self._settle()
            self._compare()
        except Exception as error:
            raise self._failure(_told(error)) from error
        self._say(f"[{self._age()}] all checks hold: {self.summary()}")

    def _settle(self) -> None:
        patience = self._settings.patience
        self._wait(self._world.until("all services to be there", self._is_whole, _START_S))
        self._wait(self._world.until("the index commands to end", self.secondary.rests, COMMANDS_END_S))
        self._wait(self._world.next_commits(_LAST_COMMITS))
        self._feeder.stop(_KAFKA_S * patience)
        self._wait(self._world.until("lag 0", self._has_no_lag, _LAG_S))
        self._wait(self._world.until("every observer to have looked", self._is_observed, _SETTLE_S))
        if self._settings.services:
            rest = self.cluster.table_services_rest
            self._wait(self._world.until("table services to rest", rest, _SETTLE_S))
        for views in (self.views, *self.spark_views):
            views.stop()
        self.history.add(self._reader.read_to_end(_KAFKA_S * patience))
        bootstrap = self.cluster.brokers.bootstrap
        self._poll("transactions", lambda: end_checks.check_transactions(bootstrap))
        self._poll("files", lambda: end_checks.check_files(self.cluster.table, self.timeline.commits))
        self.timeline.stop()
        self._raise_findings()

    def _compare(self) -> None:
        table, brokers = self.cluster.table, self.cluster.brokers.bootstrap
        self._none("rows", end_checks.check_rows(table, self.history.rows(), self._read_rows))
        self._none("secondary index", self.secondary.check(self.history.rows()))
        self._none("index records", check_indexes(table, self._settings.by_partition))
        self._none("verify", end_checks.check_verify(self.cluster.admin_config()))
        self._none("dead letters", end_checks.check_dead_letters(brokers, self.history.broken))
        codes = self.cluster.stop()
        self._none("stop", (f"{name} ended with {code}" for name, code in codes.items() if code))
        self._none("files", end_checks.check_files(table, self.timeline.commits))
        if self._settings.services:
            self.ended = ended_services(table, self._world.dead_writes)

    def _is_whole(self) -> bool:
        status = self.cluster.status()
        if status is None or not status["writer"]["asked"]:
            return False
        lanes = {"shuffle": PARTITIONS, "assign": LANES}
        return all(
            sum(len(member["lanes"]) for member in status["services"][stage]) == count
            for stage, count in lanes.items()
        )

    def _is_observed(self) -> bool:
        """Observers that saw nothing wrong because they saw nothing prove nothing."""
        read = all(views.views > 0 for views in (self.views, *self.spark_views))
        return read and self.views.exact > 0 and self.memory.samples > 0

    def _has_no_lag(self) -> bool:
        status = self.cluster.status()
        lag = status["lag"] if status is not None else None
        return lag is not None and not any(lag.values())

    def _poll(self, what: str, check: Callable[[], Iterator[str]]) -> None:
        deadline_s = time.monotonic() + _SETTLE_S * self._settings.patience
        while found := list(check()):
            if time.monotonic() >= deadline_s:
                self._none(what, found)
            self._tick()

    @staticmethod
    def _none(what: str, found: Iterable[str]) -> None:
        if differences := list(found):
            shown = "\n  ".join(differences[:20])
            raise AssertionError(f"{what}: {len(differences)} differences\n  {shown}")

    # -- telling

    @property
    def dead_writes(self) -> Collection[str]:
        """Instants of another engine's dead writers."""
        return self._world.dead_writes

    def exits(self) -> Mapping[str, Counter[str]]:
        """Ends that nobody provoked, by service: what they said last."""
        found: dict[str, Counter[str]] = {}
        for seat in (*self.cluster.seats.values(), *self.cluster.replaced):
            for each in seat.exits:
                if each.code not in _PROVOKED:
                    found.setdefault(seat.role, Counter())[f"{each.code}: {each.said[:160]}"] += 1
        return found

    def summary(self) -> str:
        rows, commits = len(self.history.rows()), len(self.timeline.commits)
        return (
            f"{self.secondary.summary()}{self.history.records} records, {rows} rows, {commits} commits, "
            f"{self.views.views} views "
            f"({self.views.exact} exactly, the longest {self.views.longest_s:.1f} s), "
            + "".join(f"{views.views} by Hudi on Spark, " for views in self.spark_views)
            + (f"services {dict(sorted(self.ended.items()))}, " if self._settings.services else "")
            + f"{sum(self.counts.values())} faults, peak MiB {dict(sorted(self.memory.peak_mib.items()))}"
        )

    def _failure(self, what: str) -> ChaosError:
        settings = self._settings
        steps = "\n".join(
            f"  {number}. {' + '.join(map(str, step))}" for number, step in enumerate(self._done, start=1)
        )
        exits = "".join(f"\n  {role}: {dict(found)}" for role, found in self.exits().items())
        return ChaosError(
            f"{what}\nseed {settings.seed}, {settings.table}, after {self._age()}; steps:\n{steps}\n"
            f"ends that nobody provoked:{exits or ' none'}\n{told_now(self.cluster, self.timeline.epoch)}\n"
            f"left in {settings.folder}"
        )

    def _keep(self) -> None:
        """What lies on disks that go away is copied beside the logs."""
        for name, disk in self.disks.items():
            kept = self._settings.folder / "kept" / name
            shutil.copytree(
                disk.folder,
                kept,
                ignore=shutil.ignore_patterns(BALLAST),
                dirs_exist_ok=True,
                ignore_dangling_symlinks=True,
            )

    def _age(self) -> str:
        seconds = int(time.monotonic() - self._started_s)
        return f"{seconds // 60:02d}:{seconds % 60:02d}"


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"


def _mount(folder: Path, say: Say) -> dict[str, SmallDisk]:
    try:
        return small_disks(folder)
    except OSError as error:
        say(f"NOT DONE HERE: full disks ({error})")
        return {}
