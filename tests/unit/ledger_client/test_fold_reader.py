"""The fold's I/O: entries wait for the other topic, snapshots start a reader, trimming resets one."""

from __future__ import annotations

import pytest

from testing.kafka.readers import MemoryPartitionReader
from tests.unit.epoch_protocol.builders import claim, tagged
from tests.unit.ledger_client.memory_cluster import EPOCHS, LEDGER, MemoryCluster
from tidemark.epoch_protocol.entries import (
    PROTOCOL_VERSION,
    CoordinatorClaimed,
    EpochCommitted,
    EpochPlanned,
    Rewound,
    SnapshotTaken,
    Stage,
    TableLocation,
    TransactionBegun,
    encode_entry,
)
from tidemark.epoch_protocol.errors import FoldGapError, UnknownEntryError
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.epoch_protocol.state import Committed, FoldState
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
    with pytest.raises(DeadlineExceededError, match="open transaction .*, or .* no broker"):
        reader.catch_up(timeout_s=0.2)
    cluster.decide(Rewound(term, 1, -1, "0", "foreign"))
    assert [a.verdict for a in reader.catch_up()] == [Verdict.APPLIED, Verdict.CLAIMED]


def test_a_reader_that_follows_goes_on_where_it_was(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = cluster.decide(CoordinatorClaimed("c"))
    at = cluster.ledger(claim(["0"]))
    reader = cluster.reader()
    reader.catch_up()
    cluster.decide(plan(term, through=at + 1))
    assert reader.poll(0.0) == [], "the plan is held back for the ledger"

    def no_leader(*_: object) -> None:
        raise KafkaUnavailableError("no leader yet")

    with monkeypatch.context() as away:
        away.setattr(MemoryPartitionReader, "assign", no_leader)
        with pytest.raises(KafkaUnavailableError):
            reader.follow()
    reader.follow()
    cluster.ledger(tagged({"0": (0, 5)}, {"0": at}))
    assert [a.verdict for a in reader.poll(0.0)] == [Verdict.COUNTS, Verdict.APPLIED]
    assert reader.resets == 0
    assert reader.catch_up() == []


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


def test_the_ends_of_a_first_try_are_reached_while_transactions_overlap_for_ever(
    cluster: MemoryCluster,
) -> None:
    begun = encode_entry(TransactionBegun(Stage.ASSIGN, 0, "n"))
    producers = [cluster.client.producer(f"assign-{number}") for number in (0, 1)]
    for producer in producers:
        producer.init()
    reader = cluster.reader()
    producers[0].begin()
    producers[0].produce(LEDGER, begun)
    producers[0].flush()
    ends = reader.ends()
    with pytest.raises(DeadlineExceededError):
        reader.catch_up(0.2, ends)
    producers[1].begin()
    producers[1].produce(LEDGER, begun)
    producers[1].flush()
    producers[0].commit()
    with pytest.raises(DeadlineExceededError):
        reader.catch_up(0.2)
    assert reader.ends(at_most=ends) == ends
    reader.catch_up(0.2, reader.ends(at_most=ends))
    assert reader.ledger_position() == ends[LEDGER]


def test_ends_that_a_broker_lost_are_not_waited_for(cluster: MemoryCluster) -> None:
    cluster.ledger(claim(["0"]))
    reader = cluster.reader()
    now = reader.ends()
    assert reader.ends(at_most={tp: end + 5 for tp, end in now.items()}) == now


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
    behind.follow()
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


def test_the_fold_goes_on_from_the_newest_snapshot_whatever_lies_before_it(cluster: MemoryCluster) -> None:
    """A broker that was killed forgets deletions: older snapshots are there again without their documents."""
    term, expected = trimmed(cluster)
    at_end = cluster.reader()
    at_end.catch_up()
    cluster.documents = {"newer": expected}
    cluster.decide(SnapshotTaken(term, "newer", "hash", at_end.fold.state.ledger_next))
    at_end.catch_up()
    for deletions in (0, 1):
        cluster.broker.put_start_back(EPOCHS, deletions)
        reader = cluster.reader()
        reader.catch_up()
        assert reader.fold.snapshot() == at_end.fold.snapshot()
    assert cluster.admin.start_offset(EPOCHS) == 0
    assert cluster.admin.start_offset(LEDGER) > 0


def test_a_first_snapshot_of_more_than_the_entries_tell_is_gone_on_from(cluster: MemoryCluster) -> None:
    """A new ledger of a table that has epochs: what is deleted before its snapshot may come back."""
    term = cluster.decide(CoordinatorClaimed("new-ledger", ledger="this"))
    committed = Committed(7, -1, "1", "2")
    begun = FoldState(coordinator_term=term, ledger="this", committed=committed, protocol=PROTOCOL_VERSION)
    cluster.documents["first"] = Fold(begun).snapshot()
    mark = cluster.decide(SnapshotTaken(term, "first", "hash", 0))
    cluster.admin.delete_records({EPOCHS: mark})
    expected = cluster.reader()
    expected.catch_up()
    assert expected.fold.state.committed.epoch == 7
    cluster.broker.put_start_back(EPOCHS, 1)
    reader = cluster.reader()
    reader.catch_up()
    assert reader.fold.snapshot() == expected.fold.snapshot()


def test_whose_the_topics_are_is_known_when_no_snapshot_can_be_read(cluster: MemoryCluster) -> None:
    """Documents lie with the table, and a folder of another table has none of them."""
    _, _ = trimmed(cluster)
    there = TableLocation("/data/orders", "1:2")
    cluster.decide(CoordinatorClaimed("successor", ledger="this", location=there))
    cluster.documents.clear()
    reader = cluster.reader()
    with pytest.raises(KeyError, match="snap"):
        reader.catch_up()
    assert (reader.fold.state.ledger, reader.fold.state.location) == ("this", there)


def test_a_snapshot_of_a_coordinator_that_was_replaced_counts_for_no_more_than_it_holds(
    cluster: MemoryCluster,
) -> None:
    """It was taken before the successor's claim, and written behind it."""
    former = cluster.decide(CoordinatorClaimed("former"))
    cluster.documents["stale"] = reader_state(cluster)
    cluster.decide(CoordinatorClaimed("successor"))
    cluster.decide(SnapshotTaken(former, "stale", "hash", 0))
    reader = cluster.reader()
    assert [each.verdict for each in reader.catch_up()][-1] is Verdict.STALE_COORDINATOR
    term = reader.fold.state.coordinator_term
    assert term is not None
    assert term > former
    assert reader.fold.state.last_snapshot is None
    # Its successor deletes documents that it does not know.
    cluster.documents["valid"] = reader.fold.snapshot()
    cluster.decide(SnapshotTaken(term, "valid", "hash", 0))
    cluster.decide(SnapshotTaken(former, "gone", "hash", 0))
    reader.catch_up()
    fresh = cluster.reader()
    fresh.catch_up()
    assert fresh.fold.snapshot() == reader.fold.snapshot()


def reader_state(cluster: MemoryCluster) -> bytes:
    """What a reader makes of all that is there."""
    reader = cluster.reader()
    reader.catch_up()
    return reader.fold.snapshot()


def test_a_ledger_that_ends_before_the_newest_snapshot_is_refused(cluster: MemoryCluster) -> None:
    """It lost its end: what is written there now is not what the snapshot is about."""
    term, expected = trimmed(cluster)
    cluster.documents["newer"] = expected
    cluster.decide(SnapshotTaken(term, "newer", "hash", 99))
    state = Fold.restore(expected).state
    state.ledger_next = 99
    cluster.documents["newer"] = Fold(state).snapshot()
    with pytest.raises(FoldGapError, match="goes on at 99"):
        cluster.reader().catch_up()


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
