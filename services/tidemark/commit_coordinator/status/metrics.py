"""The metrics of a coordinator (docs/metrics.md).

Durations are observed when an epoch ends; all else is read at each scrape from the view that the loop shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.metrics_core import Metric

from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.status.document import StatusSource
from tidemark.commit_coordinator.status.epoch_counters import EpochCounters
from tidemark.commit_coordinator.status.epoch_traces import EpochTraces
from tidemark.commit_coordinator.status.sampled_stats import SampledStats
from tidemark.commit_coordinator.status.service_metrics import ServiceMetrics
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import TAG_OF_COUNT, EpochPlanned, Stage
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.hudi_format.model import instant_to_ms
from tidemark.ledger_client.dead_letters import LetterRetention
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.metrics import Metrics
from tidemark.stream_runtime.tracing import open_traces

# A writer of another version may report other steps. They must not become time series of their own.
STEPS: Final = (
    *("plan_lock", "plan_append", "plan_open", "plan_unlock", "write", "job", "task_read", "task_write"),
    *("decide_lock", "decide_store", "decide_append", "commit_metadata", "commit_data", "commit_clean_up"),
)


class CoordinatorMetrics:
    """Metrics and traces of a coordinator; a `CommitListener`. `watch` says where the values come from."""

    def __init__(self, config: TableConfigFile, clock: Clock, term: Callable[[], int]) -> None:
        """``term``: gives this coordinator's term, -1 before it has one."""
        self.metrics = metrics = Metrics("coordinator", config.table.name)
        self._clock, self._term = clock, term
        self._sent = open_traces(config, "coordinator")
        self.traces = EpochTraces(config.table.name, self._sent, clock)
        self.counters = EpochCounters(term)
        self.services = ServiceMetrics(metrics, term)
        self._watched: tuple[StatusSource, SampledStats] | None = None
        self._steps = metrics.histogram("epoch_step_seconds", "Steps of committed epochs", ["step"])
        self._epochs = metrics.histogram("epoch_seconds", "Epochs, from plan to commit")
        metrics.on_scrape(self._collect)

    def watch(self, status: StatusSource, sampled: SampledStats) -> None:
        """Scrapes read from these from now on; before, they have no values."""
        self._watched = status, sampled

    def observing(self, first: Callable[[Applied], None]) -> Callable[[Applied], None]:
        """A function that gives each applied entry to ``first``, then to counters and traces."""

        def observe(applied: Applied) -> None:
            first(applied)
            self.counters.observe(applied)
            self.services.observe(applied)
            self.traces.observe(applied, self._term())

        return observe

    def start(self) -> None:
        """Begins to sample the values that cost a listing or a question to Kafka."""
        assert self._watched is not None
        self._watched[1].start()

    def stop(self) -> None:
        """Ends the sampling and sends the last traces. Repeatable."""
        if self._watched is not None:
            self._watched[1].stop()
        self._sent.close()

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        """Does nothing: metrics change after the commit."""

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        self._epochs.observe(max(self._clock.now_ms() - planned.planned_ms, 0) / 1000)
        for step, took_ms in (report.timings_ms if report is not None else {}).items():
            if step in STEPS:
                self._steps.labels(step).observe(took_ms / 1000)

    def rewinding(self) -> None:
        """Does nothing: `EpochCounters` counts the rewind when its entry is read back."""

    def _collect(self) -> Iterable[Metric]:
        if self._watched is None:
            return
        status, sampled = self._watched
        view = status.board.current
        if view.term < 0:
            # Nothing is known of the table yet. Counters of 0 would look like a reset: `increase()` would
            # then count all records of the past once more.
            return
        yield from self._state(view, sampled)
        yield from self._records(view)
        yield from self._decisions()
        yield from self._lags(sampled)
        yield from self._table(sampled, status.placement)
        yield from self.services.of_view(view.services, self._clock.now_ms())
        yield from self.services.of_slices(status.placement.snapshot())
        yield from self._members(status.members)
        yield self._stopped_lanes(status.stopped_lanes())
        yield from self._dead_letters(sampled.dead_letters)
        yield from self._verification(status.verification)

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        family = self.metrics.gauge_family(name, help_text)
        family.add_metric([], float(value))
        return family

    def _state(self, view: CoordinatorView, sampled: SampledStats) -> Iterable[Metric]:
        now_ms = self._clock.now_ms()
        age_ms, committed_ms = now_ms - (view.planned_ms or now_ms), 0
        if view.completion is not None:
            committed_ms = instant_to_ms(view.completion)
        yield self._gauge("term_offset", "Fencing number: offset of this coordinator's claim", view.term)
        yield self._gauge("committed_epoch", "Last committed epoch", view.epoch)
        yield self._gauge(
            "committed_instant_seconds",
            "Unix time of the last commit; 0: none",
            committed_ms / 1000,
        )
        yield self._gauge(
            "epoch_age_seconds",
            "Age of the epoch that is being written; 0: none",
            age_ms / 1000,
        )
        yield self._gauge("open_attempts", "Attempts in a row at the next epoch", view.attempts)
        halted = view.halted is not None or view.trouble is not None
        yield self._gauge("commits_halted", "1 while commits rest until something is repaired", halted)
        yield self._gauge("tagging_paused", "1 after `tidemark pause`", view.paused)
        yield self._gauge(
            "foreign_lock_held", "1 while commits wait for another writer's lock", view.lock_held is not None
        )
        yield self._gauge(
            "foreign_clustering_waiting",
            "1 while commits wait for another writer's pending clustering",
            view.awaited is not None and view.awaited_index is None,
        )
        unfinished = self.metrics.gauge_family(
            "foreign_index_waiting",
            "1 while commits wait for an index that another writer has not finished",
            ["index"],
        )
        if view.awaited_index is not None:
            unfinished.add_metric([view.awaited_index], 1.0)
        yield unfinished
        yield self._gauge(
            "oldest_transaction_seconds",
            "Age of the oldest open transaction, which holds readers back; 0: none, or not known while Kafka "
            "does not answer",
            sampled.oldest_transaction_s,
        )

    def _records(self, view: CoordinatorView) -> Iterable[Metric]:
        done = self.metrics.counter_family(
            "committed_records",
            "Committed input records by tag; a move is an update as well",
            ["tag"],
        )
        for count, tag in TAG_OF_COUNT.items():
            done.add_metric([tag], getattr(view.committed, count))
        yield done
        dead_letters = self.metrics.counter_family(
            "dead_letter_records", "Input records that could not be taken"
        )
        # A counter may not fall. Dead letters of assigners (`partitioning: shard`) may be taken back by a
        # rewind until they are committed, so uncommitted ones are left out.
        dead_letters.add_metric([], view.dead_letters + view.committed.dead_letters)
        yield dead_letters
        yield self._gauge("uncommitted_records", "Tagged and not committed", view.uncommitted.input)
        yield self._gauge("uncommitted_bytes", "Tagged and not committed", view.uncommitted_bytes)
        yield self._gauge(
            "uncommitted_transactions", "Of assigners, not committed", view.uncommitted_transactions
        )
        yield self._gauge(
            "shuffled_transactions", "Of shufflers, that no commit covers", view.shuffled_transactions
        )

    def _decisions(self) -> Iterable[Metric]:
        attempts = self.metrics.counter_family(
            "epoch_attempts", "Attempts by what became of them, since this coordinator began", ["outcome"]
        )
        for outcome in ("planned", "committed", "voided"):
            attempts.add_metric([outcome], self.counters.attempts[outcome])
        again = self.metrics.counter_family(
            "recommits",
            "Commits that another coordinator had decided (takeover), and decisions that were taken_back",
            ["reason"],
        )
        for reason in ("takeover", "taken_back"):
            again.add_metric([reason], self.counters.recommits[reason])
        rewinds = self.metrics.counter_family("rewinds", "How often all lanes went back to the last commit")
        rewinds.add_metric([], self.counters.rewinds)
        return attempts, again, rewinds

    def _lags(self, sampled: SampledStats) -> Iterable[Metric]:
        records = self.metrics.gauge_family(
            "lag_records", "Input that is not past the stage (offsets, markers among them)", ["stage"]
        )
        seconds = self.metrics.gauge_family(
            "lag_seconds", "How long ago the input ended where the stage stands now", ["stage"]
        )
        if (lags := sampled.lags) is not None:
            for stage, count in lags.records.items():
                records.add_metric([stage], count)
                seconds.add_metric([stage], lags.seconds[stage])
        return records, seconds

    def _table(self, sampled: SampledStats, placement: Placement) -> Iterable[Metric]:
        pending = self.metrics.gauge_family("pending_instants", "Instants not completed yet", ["timeline"])
        logs = self.metrics.gauge_family(
            "record_index_log_files", "Log files behind the base file, of the 100 shards with most", ["shard"]
        )
        if (table := sampled.table) is not None:
            for timeline, count in table.pending.items():
                pending.add_metric([timeline], count)
            for shard, count in table.log_files.items():
                logs.add_metric([shard], count)
        yield pending
        yield logs
        stats = placement.stats()
        yield self._gauge("file_groups", "File groups of the table", stats["file_groups"])
        yield self._gauge("table_bytes", "Size of the table's newest file slices", stats["bytes"])

    def _members(self, members: Members) -> Iterable[Metric]:
        here = self.metrics.gauge_family("members", "Processes that hold a slot", ["stage"])
        idle = self.metrics.gauge_family("unowned_lanes", "Lanes that nobody works on", ["stage"])
        for stage in Stage:
            here.add_metric([stage.value], len(members.members(stage)))
            idle.add_metric([stage.value], sum(slot is None for _, slot in members.leases(stage).values()))
        return here, idle

    def _stopped_lanes(self, stopped: Iterable[StoppedLane]) -> Metric:
        family = self.metrics.gauge_family(
            "stopped_lane_seconds",
            "How long a lane has not been read any further than the offset, until somebody acts",
            ["topic", "partition", "offset", "reason"],
        )
        for lane in stopped:
            place = [lane.topic, str(lane.partition), str(lane.offset), lane.reason.value]
            family.add_metric(place, max(self._clock.now_ms() - lane.since_ms, 0) / 1000)
        return family

    def dead_letters(self) -> LetterRetention | None:
        """How many dead letters are kept, as of the last sample; None before the first."""
        return None if self._watched is None else self._watched[1].dead_letters

    def large_shards(self, lanes: int) -> list[str]:
        """The warnings of shards with too many entries, as of the last sample."""
        table = None if self._watched is None else self._watched[1].table
        return [] if table is None or table.sizes is None else table.sizes.warnings(lanes)

    def _dead_letters(self, dead_letters: LetterRetention | None) -> Iterable[Metric]:
        if dead_letters is None:
            return
        yield self._gauge(
            "dead_letter_kept_offsets", "Offsets of dead letters that are there", dead_letters.kept
        )
        yield self._gauge(
            "dead_letter_expiring_offsets",
            "Offsets of dead letters that Kafka deletes next",
            dead_letters.expiring,
        )
        yield self._gauge(
            "dead_letter_deleted_offsets",
            "Offsets of dead letters that Kafka has deleted",
            dead_letters.deleted,
        )

    def _verification(self, verification: PeriodicVerification) -> Iterable[Metric]:
        """From the first verification on. Before it `verify_agrees` would be 0, which is the alarm."""
        last, decided = verification.last, verification.decided
        if last is not None:
            yield self._gauge("verify_seconds", "How long the last verification took", last.seconds)
            yield self._gauge(
                "verify_undecided_attempts",
                "Verifications in a row that came to no verdict",
                verification.undecided,
            )
        if decided is not None:
            yield self._gauge(
                "verify_agrees", "1: the last verdict was that there is no difference", bool(decided.agrees)
            )
            yield self._gauge("verify_differences", "What was found at the last verdict", decided.differences)
