"""The metrics of an assigner process (docs/metrics.md).

Durations are recorded when they happen. All other values are read at each scrape: memory, and the stats
in the newest report of each stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from prometheus_client.metrics_core import Metric

from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.dropped_fields import dropped_fields
from tidemark.epoch_protocol.entries import TAG_OF_COUNT, Stage
from tidemark.index_assigner.index.limits import limits_of, share_of_runs
from tidemark.index_assigner.shuffle.dead_letters import REASON_STAT
from tidemark.index_assigner.slots.lease import StageReport
from tidemark.index_assigner.slots.observer import AssignerObserver
from tidemark.stream_runtime.allocator import anonymous_bytes
from tidemark.stream_runtime.metrics import LATENCY_BUCKETS_S, Metrics

_TIERS: Final = ("uncommitted", "hot", "rocksdb", "run", "mdt", "none")
_OUTCOMES: Final = ("counted", "not_counted", "aborted", "unknown")
_LANE_LAG: Final = "lag_lane_"


class _Plain(NamedTuple):
    """A reported stat that becomes one metric unchanged: a counter if ``total``, else a gauge."""

    stat: str
    name: str
    help_text: str
    total: bool = False


_SHUFFLE: Final = (
    _Plain("shuffled_records", "shuffled_records", "Input records decoded, keyed and published", True),
    _Plain(
        "gathered_bytes", "gathered_bytes", "Input that waits for the next transaction of the shuffle stage"
    ),
)
_ASSIGN: Final = (
    _Plain(
        "blocks_read",
        "index_blocks",
        "Blocks of the record index that look-ups read in the metadata table",
        True,
    ),
    _Plain("run_shards", "run_shards", "Open shards that a run file answers for"),
    _Plain("runs_loaded", "loaded_run_files", "Shards loaded into run files", True),
    _Plain("runs_evicted", "evicted_run_files", "Run files deleted because state.disk was full", True),
    _Plain(
        "run_entries_evicted",
        "evicted_run_entries",
        "Entries that left run files because state.disk was full",
        True,
    ),
    _Plain(
        "run_entries_lacking",
        "lacking_run_entries",
        "Entries of open shards' base files that no run file has: their look-ups read blocks",
    ),
    _Plain("runs_damaged", "damaged_run_files", "Shards of which a damaged run file was set aside"),
    _Plain("change_run_entries", "change_run_entries", "Changed entries that are in run files"),
    _Plain(
        "take_overs", "taken_over_shards", "Moves of a shard's entries from RocksDB into a run file", True
    ),
    _Plain("change_runs_lost", "refilled_shards", "Shards filled anew for want of their change run", True),
    _Plain("shards_dropped", "dropped_shards", "Shards given up because state.disk was full", True),
    _Plain("epoch_promoted", "promoted_epoch", "Newest epoch whose changes are in RocksDB"),
)


class Reports(Protocol):
    """Has a stage's slot and newest report (`MembershipClient`)."""

    @property
    def reported(self) -> tuple[int, StageReport]: ...


class AssignerMetrics(AssignerObserver):
    """The metrics of one process. Stages are made later than this object: `watch` names them."""

    def __init__(self, config: TableConfigFile) -> None:
        self.metrics = metrics = Metrics("assigner", config.table.name)
        self._limits = limits_of(config.state)
        self._uncommitted_max = config.limits.uncommitted_entries
        self._stages: Mapping[Stage, Reports] = {}
        self._lookups = metrics.histogram(
            "lookup_seconds",
            "One look into a tier, for the keys of one lane of a batch",
            ["tier"],
            (0.0001, 0.0002, 0.0005, *LATENCY_BUCKETS_S),
        )
        self._transactions = metrics.histogram(
            "transaction_seconds", "Kafka transactions, from begin to their end", ["stage", "outcome"]
        )
        metrics.on_scrape(self._collect)

    def watch(self, stages: Mapping[Stage, Reports]) -> None:
        """From now on each scrape reads the reports of these stages."""
        self._stages = dict(stages)

    def tier_read(self, tier: str, seconds: float) -> None:
        self._lookups.labels(tier).observe(seconds)

    def transaction(self, stage: Stage, outcome: str, seconds: float) -> None:
        self._transactions.labels(stage.value, outcome).observe(seconds)

    def _collect(self) -> Iterable[Metric]:
        yield self._memory()
        reports = {stage: source.reported for stage, source in self._stages.items()}
        yield from self._slots(reports)
        if Stage.SHUFFLE in reports:
            yield from self._plain(reports[Stage.SHUFFLE][1].stats, _SHUFFLE)
        if Stage.ASSIGN in reports:
            stats = reports[Stage.ASSIGN][1].stats
            yield from self._plain(stats, _ASSIGN)
            yield from self._tagging(stats)
            yield from self._tiers(stats)

    def _memory(self) -> Metric:
        family = self.metrics.gauge_family(
            "anonymous_memory_bytes",
            "Resident memory that the process allocated itself (RssAnon), without mapped files",
        )
        size = anonymous_bytes()
        if size is not None:
            family.add_metric([], size)
        return family

    def _slots(self, reports: Mapping[Stage, tuple[int, StageReport]]) -> Iterable[Metric]:
        make = self.metrics
        lanes = make.gauge_family(
            "slot_lanes", "Lanes that the slot of this process holds", ["stage", "slot"]
        )
        ended = make.counter_family(
            "transactions", "Kafka transactions by how they ended", ["stage", "outcome"]
        )
        claims = make.counter_family("claims", "Claims of lanes", ["stage"])
        doubts = make.counter_family("doubts", "How often all that was held of lanes was dropped", ["stage"])
        waits = make.gauge_family(
            "input_waiting", "1 while records cannot be decoded yet (schema registry)", ["stage"]
        )
        letters = make.counter_family(
            "dead_letter_records", "Records that could not be taken, by reason", ["stage", "reason"]
        )
        passed = make.counter_family(
            "passed_over_records", "Records that are about no row (Debezium's `m`)", ["stage"]
        )
        dropped = make.counter_family(
            "dropped_field_records",
            "Records taken without a field that table.schema lacks",
            ["stage", "topic", "field"],
        )
        for stage, (slot, report) in reports.items():
            name, stats = stage.value, report.stats
            if slot >= 0:
                lanes.add_metric([name, str(slot)], len(report.lanes_held))
            for outcome in _OUTCOMES:
                ended.add_metric([name, outcome], stats.get(f"transactions_{outcome}", 0.0))
            claims.add_metric([name], stats.get("claims", 0.0))
            doubts.add_metric([name], stats.get("doubts", 0.0))
            waits.add_metric([name], stats.get("input_waits", 0.0))
            passed.add_metric([name], stats.get("passed_over_records", 0.0))
            for stat, count in stats.items():
                if stat.startswith(REASON_STAT):
                    letters.add_metric([name, stat.removeprefix(REASON_STAT)], count)
            for field in dropped_fields(stats):
                dropped.add_metric([name, field.topic, field.field], field.records)
        return lanes, ended, claims, doubts, waits, letters, passed, dropped

    def _plain(self, stats: Mapping[str, float], shown: Iterable[_Plain]) -> Iterable[Metric]:
        for plain in shown:
            make = self.metrics.counter_family if plain.total else self.metrics.gauge_family
            family = make(plain.name, plain.help_text)
            family.add_metric([], stats.get(plain.stat, 0.0))
            yield family

    def _tagging(self, stats: Mapping[str, float]) -> Iterable[Metric]:
        tags = self.metrics.counter_family(
            "tagged_records", "Input records by what became of them; a move is an update as well", ["tag"]
        )
        for stat, tag in TAG_OF_COUNT.items():
            tags.add_metric([tag], stats.get(f"tagged_{stat}", 0.0))
        lag = self.metrics.gauge_family("lag_offsets", "Offsets of a lane that are not read yet", ["lane"])
        for stat, offsets in stats.items():
            if stat.startswith(_LANE_LAG):
                lag.add_metric([stat.removeprefix(_LANE_LAG)], offsets)
        return tags, lag

    def _tiers(self, stats: Mapping[str, float]) -> Iterable[Metric]:
        make, limits = self.metrics, self._limits
        hits = make.counter_family("lookup_keys", "Keys looked up, by the tier that knew them", ["tier"])
        for tier in _TIERS:
            hits.add_metric([tier], stats.get(f"keys_{tier}", 0.0))
        held = make.gauge_family(
            "tier_bytes",
            "What a tier holds; rocksdb and run on disk, change_run the part of run that cannot leave alone, "
            "run_mapped in mapped pages, the others in memory",
            ["tier"],
        )
        limit = make.gauge_family("tier_limit_bytes", "What a tier may hold", ["tier"])
        bounds = {
            "uncommitted": ("uncommitted_bytes", limits.uncommitted),
            "hot": ("hot_bytes", limits.hot_cache),
            "rocksdb": ("rocksdb_bytes", limits.disk_bytes),
            "run": ("run_bytes", share_of_runs(limits.disk_bytes)),
            "run_mapped": ("run_mapped_bytes", limits.mapped_bytes),
            "slice_deletes": ("delete_bytes", limits.slice_deletes),
        }
        for tier, (stat, bound) in bounds.items():
            held.add_metric([tier], stats.get(stat, 0.0))
            # The disk may have less than `state.disk`.
            limit.add_metric([tier], stats.get(f"{stat}_max", bound))
        # A part of `run`, which shares the limit of `rocksdb`: both are changed entries.
        held.add_metric(["change_run"], stats.get("change_run_bytes", 0.0))
        entries = make.gauge_family(
            "tier_entries", "Entries of a tier; of rocksdb its own estimate", ["tier"]
        )
        for tier in ("uncommitted", "hot", "rocksdb", "run"):
            entries.add_metric([tier], stats.get(f"{tier}_entries", 0.0))
        most = make.gauge_family(
            "tier_limit_entries",
            "limits.uncommitted_entries, where it is set: tagging rests at so many in all assigners",
            ["tier"],
        )
        if self._uncommitted_max is not None:
            most.add_metric(["uncommitted"], self._uncommitted_max)
        return hits, held, limit, entries, most
