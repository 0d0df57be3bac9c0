"""Samples the values that are expensive to get, on its own thread, for metrics.

Lags, open transactions and dead letters are asked from Kafka; pending instants and log files need a listing
of the table's folders. A scrape only reads the last sample, so it is answered while Kafka or the storage is
not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.input.age import InputAge
from tidemark.commit_coordinator.input.lag import InputLag
from tidemark.commit_coordinator.status.document import StatusSource
from tidemark.commit_coordinator.status.shard_sizes import ShardSizeLooks, ShardSizes
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_PARTITION,
    parse_record_index_file_id,
)
from tidemark.ledger_client.dead_letters import LetterRetention
from tidemark.stream_runtime.kafka.ports import KafkaError

_EVERY_S: Final = 2.0
_TABLE_EVERY_S: Final = 15.0
_LETTERS_EVERY_S: Final = 60.0
_SHARDS_MAX: Final = 100
_TAGGING: Final = "keyed"
_log = logging.getLogger("tidemark.coordinator")


@dataclass(frozen=True)
class Lags:
    """By stage (shuffle, assign, commit): input records that have not passed it, and seconds behind."""

    records: Mapping[str, int]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class TableStats:
    """Pending instants by timeline; log files of the record index by shard, for the shards with most (in a
    partitioned index a shard is `<data partition>/<number>`); how large its shards are.
    """

    pending: Mapping[str, int] = field(default_factory=dict)
    log_files: Mapping[str, int] = field(default_factory=dict)
    sizes: ShardSizes | None = None


class SampledStats:
    """The last samples. `lags`, `table` and `dead_letters` are None while they are not known."""

    def __init__(
        self,
        status: StatusSource,
        input_ends: Callable[[], Mapping[str, int]],
        holds_records: Callable[[str, int, int], bool],
        sharded: bool,
        dead_letters: Callable[[], LetterRetention] = LetterRetention,
    ) -> None:
        """``input_ends``, ``holds_records``: as in `InputLag`. ``sharded``: there is no shuffle stage.

        ``dead_letters`` asks Kafka about dead letters.
        """
        self._ask_letters, self._letters_due_s = dead_letters, 0.0
        self.dead_letters: LetterRetention | None = None
        self._board, self._storage, self._clock = status.board, status.storage, status.clock
        self._input_ends, self._sharded = input_ends, sharded
        self._open_transaction = status.open_transaction
        self._ends: Mapping[str, int] = {}
        self._lag = InputLag(lambda: self._ends, holds_records, status.clock)
        self._inputs, self._keyed = InputAge(), InputAge()
        self._table_due_s, self._sizes = 0.0, ShardSizeLooks()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stats", daemon=True)
        self.lags: Lags | None = None
        self.table: TableStats | None = None
        self.oldest_transaction_s = 0.0

    def start(self) -> None:
        """Begins to sample."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the sampling. Repeatable."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_EVERY_S)

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            self.sample()

    def sample(self) -> None:
        """Takes one sample. A value that cannot be had is None until the next sample."""
        try:
            self.lags = self._lags()
        except KafkaError as error:
            _log.debug("no lags: %s", error)
            self.lags = None
        opened = self._open_transaction()
        self.oldest_transaction_s = opened.age_ms / 1000 if opened is not None else 0.0
        now_s = self._clock.monotonic_s()
        if now_s >= self._letters_due_s:
            self._letters_due_s = now_s + _LETTERS_EVERY_S
            try:
                self.dead_letters = self._ask_letters()
            except KafkaError as error:
                _log.debug("no stats of the dead letters: %s", error)
                self.dead_letters = None
        if now_s < self._table_due_s:
            return
        self._table_due_s = now_s + _TABLE_EVERY_S
        try:
            self.table = self._table()
        except (OSError, HudiFormatError) as error:
            _log.debug("no stats of the table: %s", error)
            self.table = None

    def _lags(self) -> Lags:
        self._ends = dict(self._input_ends())
        view, now_s = self._board.current, self._clock.monotonic_s()
        offsets = self._lag.document(view)
        shuffle, commit = offsets["input_offsets_not_shuffled"], offsets["input_offsets_not_committed"]
        self._inputs.sample(now_s, self._ends)
        shuffle_s = self._inputs.seconds(now_s, view.taken_next) if shuffle else 0.0
        commit_s = self._inputs.seconds(now_s, view.source_next) if commit else 0.0
        if self._sharded:
            return Lags({"assign": shuffle, "commit": commit}, {"assign": shuffle_s, "commit": commit_s})
        shuffled, tagged = _shuffled(view), _tagged(view)
        self._keyed.sample(now_s, {_TAGGING: shuffled})
        assign_s = max(shuffle_s, self._keyed.seconds(now_s, {_TAGGING: tagged}))
        assign = shuffle + max(shuffled - tagged, 0)
        return Lags(
            {"shuffle": shuffle, "assign": assign, "commit": max(commit, assign)},
            {"shuffle": shuffle_s, "assign": assign_s, "commit": max(commit_s, assign_s)},
        )

    def _table(self) -> TableStats:
        timelines = load_timelines(self._storage)
        snapshot = MetadataTableSnapshot.load(self._storage)
        slices = snapshot.slices[RECORD_INDEX_PARTITION]
        counts = {_shard_name(slice_.file_id): len(slice_.log_files) for slice_ in slices}
        most = sorted(counts, key=lambda shard: -counts[shard])[:_SHARDS_MAX]
        return TableStats(
            {"data": len(timelines.data.pending()), "metadata": len(timelines.metadata.pending())},
            {shard: counts[shard] for shard in most},
            self._sizes.look(snapshot),
        )


def _shard_name(file_id: str) -> str:
    group = parse_record_index_file_id(file_id)
    return f"{group.shard}" if group.partition_path is None else f"{group.partition_path}/{group.shard}"


def _shuffled(view: CoordinatorView) -> int:
    """The number of records that the shuffle stage passed to assigners: all but its dead letters."""
    return view.shuffled_records - view.dead_letters


def _tagged(view: CoordinatorView) -> int:
    return view.committed.input + view.uncommitted.input
