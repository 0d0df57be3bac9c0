"""The fold's I/O: entries wait for the other topic, snapshots start a reader, trimming resets one."""

from __future__ import annotations

import pytest

from testing.kafka.readers import MemoryPartitionReader
from tests.unit.epoch_protocol.builders import claim, tagged
from tests.unit.ledger_client.memory_cluster import EPOCHS, LEDGER, MemoryCluster
from tidemark.epoch_protocol.entries import (
    CoordinatorClaimed,
    EpochCommitted,
    EpochPlanned,
    Rewound,
    SnapshotTaken,
    Stage,
    TransactionBegun,
    encode_entry,
)
from tidemark.epoch_protocol.errors import FoldGapError, UnknownEntryError
from tidemark.epoch_protocol.fold import Verdict
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def plan(term: int, through: int, epoch: int = 1) -> EpochPlanned:
    return EpochPlanned(term, epoch, 1, 0, through, None, "0", "", 0)


def committed(term: int, epoch: int = 1) -> EpochCommitted:
    return EpochCommitted(term, epoch, 1, None, None, 0)


def test_entries_are_applied_in_the_order_of_each_topic(cluster: MemoryCluster) -> None:
    term = cluster.decide(CoordinatorClaimed("c"))
    at = cluster.ledger(claim(["0"]))
    last = cluster.ledger(tagged({"0": (0, 5)}, {"0": at}))
    reader = cluster.reader()
    applied = reader.catch_up()
    assert [(a.offset, a.verdict) for a in applied] == [
        (at, Verdict.CLAIMED), (last, Verdict.COUNTS), (term, Verdict.CLAIMED),
    ]  # fmt: skip
    assert reader.ledger_position() == last + 1
    assert reader.poll(0.0) == []


def test_a_start_that_kafka_refused_is_made_again(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.decide(CoordinatorClaimed("c"))
    at = cluster.ledger(claim(["0"]))
    reader = cluster.reader()

    def no_leader(*_: object) -> None:
        raise KafkaUnavailableError("no leader yet")

    with monkeypatch.context() as away:
        away.setattr(MemoryPartitionReader, "assign", no_leader)
        with pytest.raises(KafkaUnavailableError):
            reader.catch_up()
    assert len(reader.catch_up()) == 2
    assert reader.ledger_position() == at + 1


def test_a_decision_waits_for_the_ledger_that_it_covers(cluster: MemoryCluster) -> None:
    term = cluster.decide(CoordinatorClaimed("c"))
    cluster.decide(plan(term, through=1))
    reader = cluster.reader()
    assert [a.entry for a in reader.poll(0.0)] == [CoordinatorClaimed("c")]
    at = cluster.ledger(claim(["0"]))
    cluster.ledger(tagged({"0": (0, 5)}, {"0": at}))
    assert [a.verdict for a in reader.poll(0.0)] == [Verdict.CLAIMED, Verdict.COUNTS, Verdict.APPLIED]


def test_a_claim_of_a_new_generation_waits_for_the_rewind(cluster: MemoryCluster) -> None:
    term = cluster.decide(CoordinatorClaimed("c"))
    at = cluster.ledger(claim(["0"], generation=1))
    reader = cluster.reader()
    reader.poll(0.0)
    assert reader.ledger_position() == at
    with pytest.raises(DeadlineExceededError, match="open transaction"):
        reader.catch_up(timeout_s=0.2)
    cluster.decide(Rewound(term, 1, -1, "0", "foreign"))
    assert [a.verdict for a in reader.catch_up()] == [Verdict.APPLIED, Verdict.CLAIMED]


def test_an_open_transaction_hides_the_end_from_catch_up(cluster: MemoryCluster) -> None:
    producer = cluster.client.producer("assign-0")
    producer.init()
    producer.begin()
    producer.produce(LEDGER, encode_entry(TransactionBegun(Stage.ASSIGN, 0, "n")))
    producer.flush()
    reader = cluster.reader()
    with pytest.raises(DeadlineExceededError):
        reader.catch_up(timeout_s=0.2)
    producer.commit()
    assert [a.verdict for a in reader.catch_up()] == [Verdict.IGNORED_BEGIN]


def trimmed(cluster: MemoryCluster) -> tuple[int, bytes]:
    """An epoch, a snapshot, one more epoch; then all before the snapshot is deleted. Returns the term and
    the state at the end.
    """
    term = cluster.decide(CoordinatorClaimed("c"))
    at = cluster.ledger(claim(["0"]))
    first = cluster.ledger(tagged({"0": (0, 5)}, {"0": at}))
    cluster.decide(plan(term, first))
    cluster.decide(committed(term))
    reader = cluster.reader()
    reader.catch_up()
    cluster.documents["snap"] = reader.fold.snapshot()
    mark = cluster.decide(SnapshotTaken(term, "snap", "hash", reader.fold.state.ledger_next))
    second = cluster.ledger(tagged({"0": (5, 9)}, {"0": at}))
    cluster.decide(plan(term, second, epoch=2))
    cluster.decide(committed(term, epoch=2))
    reader.catch_up()
    cluster.admin.delete_records({LEDGER: first + 1, EPOCHS: mark})
    return term, reader.fold.snapshot()


def test_a_new_reader_starts_from_the_snapshot_and_comes_to_the_same_state(cluster: MemoryCluster) -> None:
    _, expected = trimmed(cluster)
    reader = cluster.reader()
    reader.catch_up()
    assert reader.fold.snapshot() == expected
    assert reader.resets == 0


def test_a_reader_that_fell_behind_is_reset_to_the_snapshot(cluster: MemoryCluster) -> None:
    behind = cluster.reader()
    behind.start()
    _, expected = trimmed(cluster)
    behind.catch_up()
    assert behind.resets == 1
    assert behind.fold.snapshot() == expected


def test_topics_that_begin_in_the_middle_without_a_snapshot_are_refused(cluster: MemoryCluster) -> None:
    term, _ = trimmed(cluster)
    end = cluster.decide(committed(term, 9))
    cluster.admin.delete_records({EPOCHS: end})
    with pytest.raises(FoldGapError, match="new-ledger"):
        cluster.reader().catch_up()


def test_a_trimmed_ledger_beside_whole_decisions_is_refused(cluster: MemoryCluster) -> None:
    cluster.ledger(claim(["0"]))
    cluster.admin.delete_records({LEDGER: 1})
    with pytest.raises(FoldGapError, match="recreated"):
        cluster.reader().catch_up()


def test_a_missing_snapshot_is_an_error_and_a_newer_one_is_taken_instead(cluster: MemoryCluster) -> None:
    term, expected = trimmed(cluster)
    document = cluster.documents.pop("snap")
    with pytest.raises(KeyError):
        cluster.reader().catch_up()
    newer = cluster.decide(SnapshotTaken(term, "newer", "hash", 3))

    def load(path: str, _: str) -> bytes:
        # The coordinator trims on while this reader looks for the older snapshot.
        cluster.admin.delete_records({EPOCHS: newer})
        return {"newer": expected}[path]

    reader = cluster.reader()
    reader._load_snapshot = load
    reader.catch_up()
    assert reader.fold.state.committed.epoch == 2
    assert document


def test_an_unknown_entry_stops_the_reader(cluster: MemoryCluster) -> None:
    cluster.broker.produce(LEDGER, None, b'{"type": "from_the_future"}', ())
    with pytest.raises(UnknownEntryError, match="newer Tidemark"):
        cluster.reader().catch_up()


def test_a_ledger_that_was_deleted_beyond_the_snapshot_is_refused(cluster: MemoryCluster) -> None:
    """By retention, say: only our own trimming may delete there. The reader neither jumps nor waits."""
    trimmed(cluster)
    live = cluster.reader()
    live.catch_up()
    last = cluster.ledger(claim(["0"]))
    cluster.admin.delete_records({LEDGER: last + 1})
    with pytest.raises(FoldGapError, match=r"t\.ledger holds offsets .*retention.*--new-ledger"):
        cluster.reader().catch_up()
    with pytest.raises(FoldGapError, match="retention"):
        live.poll(0.0)


def test_a_snapshot_that_is_trimmed_a_moment_after_its_ledger_is_waited_for(cluster: MemoryCluster) -> None:
    term, _ = trimmed(cluster)
    reader = cluster.reader()
    reader.catch_up()
    cluster.documents["next"] = reader.fold.snapshot()
    mark = cluster.decide(SnapshotTaken(term, "next", "hash", reader.fold.state.ledger_next))
    cluster.admin.delete_records({LEDGER: reader.fold.state.ledger_next})
    late, sleep = cluster.reader(), cluster.clock.sleep

    def trim_then_sleep(seconds: float) -> None:
        cluster.admin.delete_records({EPOCHS: mark})
        sleep(seconds)

    cluster.clock.sleep = trim_then_sleep  # type: ignore[method-assign]
    late.catch_up()
    assert late.fold.state.ledger_next == reader.fold.state.ledger_next


def test_an_unreadable_entry_is_named_by_topic_and_offset(cluster: MemoryCluster) -> None:
    cluster.ledger(claim(["0"]))
    offset = cluster.broker.produce(LEDGER, None, b"not ours", ())
    with pytest.raises(UnknownEntryError, match=rf"t\.ledger\[0\] offset {offset}: .*Run the Tidemark"):
        cluster.reader().catch_up()
