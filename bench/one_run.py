"""A `tidemark run` that takes batches, for benches that give the same ones to several tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from bench.commit_watch import CommitWatch
from bench.feeder import BatchFeeder
from bench.loading import load
from bench.made_rows import MadeRows
from bench.process_memory import MemorySampler
from bench.tidemark_process import TOPIC, TidemarkRun, configuration
from bench.turns import Taken
from bench.wide_rows import WideWorkload, avro_schema

_TIMEOUT_S: Final = 300.0
NO_SERVICES: Final = {"enabled": False}
_MERGED: Final = "there is nothing to do"


class OneRun:
    """A `tidemark run` of its own."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        workload: WideWorkload,
        stats: Sequence[str],
        secondary: str | None = None,
        index: Mapping[str, Any] | None = None,
        interval: str = "100ms",
        services: Mapping[str, Any] = NO_SERVICES,
        made: MadeRows | None = None,
    ) -> None:
        """`secondary`: a column that has an index from the beginning. `index`: further keys of `table.index`.
        `interval`: of the epochs. `services`: as `table_services`; by default there are none. `made`: rows
        that the table has before the run begins.
        """
        settings = configuration(interval, 4)
        settings["table"]["index"].update(column_stats=list(stats), **(index or {}))
        settings["table_services"] = dict(services)
        settings["services"]["web"] = "off"
        self.run = TidemarkRun(folder, settings, avro_schema(workload.schema()))
        if secondary is not None or made is not None:
            self.run.write_configuration()
            self.run.command("table", "create")
        if made is not None:
            made.fill(self.run.table)
        if secondary is not None:
            self.run.command("index", "create", f"by_{secondary}", "--column", secondary)
        stack.enter_context(self.run)
        self.watch = stack.enter_context(CommitWatch(self.run.table, TOPIC))
        # Samples on its thread matter to nobody; each batch is sampled at once.
        self._sampler = MemorySampler(self.run.roles)
        self._feeder = BatchFeeder(self.run.bootstrap, TOPIC, "bench-index-costs")

    def load(self, workload: WideWorkload) -> None:
        """All rows of the workload."""
        load(self._feeder, self.watch, workload)

    def warm(self) -> None:
        """Loads the record index into the assigner's cache."""
        self.run.command("index", "warm")

    def compact(self) -> None:
        """Merges the log files of all file groups into base files; then no service is planned any more. Only
        for a run with services. Raises RuntimeError where a compaction could not be planned.
        """
        merge = ("services", "run", "compact-data", "--wait")
        while (run := self.run.command(*merge)["runs"][0])["number"]:
            pass
        if run["nothing"] != _MERGED:
            raise RuntimeError(f"file groups have log files, and are not compacted: {run['nothing']}")
        self.run.command("services", "pause", "--reason", "batches are measured without them")

    def take(self, rows: Any) -> tuple[float, float, list[int]]:
        """As `Side`."""
        before, cpu_s = len(self.watch.commits()), self._cpu_s()
        started_s, ends = self._feeder.publish([rows])
        commit = self.watch.wait_for(ends, _TIMEOUT_S)
        used_s = self._cpu_s() - cpu_s
        return commit.seen_s - started_s, used_s, [each.epoch for each in self.watch.commits()[before:]]

    def add_steps(self, taken: Mapping[int, Taken]) -> None:
        """The steps that coordinator and writer timed."""
        listed = self.run.command("epoch", "list", "--limit", "1000")["epochs"]
        by_number = {each["epoch"]: each for each in listed}
        for of_size in taken.values():
            for number in of_size.epochs:
                for attempt in by_number.get(number, {"attempts": []})["attempts"]:
                    for step, ms in attempt["timings_ms"].items():
                        of_size.steps_ms.setdefault(step, []).append(ms)

    def _cpu_s(self) -> float:
        self._sampler.sample_now()
        return sum(self._sampler.cpu_seconds().values())
