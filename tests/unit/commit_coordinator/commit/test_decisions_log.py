"""Appending decisions: under every fault each is in the topic once, and its fate is known before the next."""

from __future__ import annotations

import pytest

from testing.kafka import ClientRequest, EndFault, RequestFault
from tests.unit.epoch_protocol.builders import claim, tagged
from tests.unit.ledger_client.memory_cluster import EPOCHS, MemoryCluster
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.errors import OutOfPlaceError
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    CoordinatorClaimed,
    Decision,
    EpochPlanned,
    Rewound,
    TaggingPaused,
    decode_decision,
)
from tidemark.epoch_protocol.fold import Verdict
from tidemark.ledger_client.errors import SupersededError
from tidemark.ledger_client.fold_reader import Applied, FoldReader
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import AbortableError, KafkaConfigError, MissingTopicError
from tidemark.stream_runtime.kafka.ports import KafkaError

NAME = "t-coordinator"


class Log:
    """A decisions log on a cluster, with what it observed."""

    def __init__(self, cluster: MemoryCluster, owner: str = "one") -> None:
        self.cluster = cluster
        self.seen: list[Applied] = []
        self.reader = cluster.reader()
        self.log = DecisionsLog(
            cluster.client, EPOCHS.topic, NAME, self.reader, cluster.clock, self.seen.append
        )
        self.log.claim(owner)

    def plan(self, attempt: int = 1) -> EpochPlanned:
        through = self.reader.fold.state.tagged[-1].offset
        return EpochPlanned(self.log.term, 1, attempt, 0, through, f"T{attempt}", "0", "", 0)

    def pause(self, number: int) -> TaggingPaused:
        return TaggingPaused(self.log.term, True, f"p{number}")


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    at = made.ledger(claim(["0"]))
    made.ledger(tagged({"0": (0, 5)}, {"0": at}))
    return made


def decisions(cluster: MemoryCluster) -> list[Decision]:
    reader = cluster.client.partition_reader()
    reader.assign({EPOCHS: 0})
    return [decode_decision(message.value or b"") for message in reader.poll(1_000, 0.0)]


def test_an_append_returns_when_the_fold_has_it_and_it_was_observed_once(cluster: MemoryCluster) -> None:
    log = Log(cluster)
    planned = log.plan()
    log.log.append(planned)
    assert log.reader.fold.state.planned == planned
    log.log.append(AttemptVoided(log.log.term, 1, 1, "x"), Rewound(log.log.term, 1, -1, "0", "x"))
    assert log.reader.fold.state.generation == 1
    observed = [a.offset for a in log.seen if a.entry in decisions(cluster)]
    assert len(observed) == len(set(observed)) == 4


@pytest.mark.parametrize("fault", list(EndFault))
@pytest.mark.parametrize("late", [True, False])
def test_each_decision_is_there_once_whatever_happens_to_ends(
    cluster: MemoryCluster, fault: EndFault, late: bool
) -> None:
    log = Log(cluster)
    for number in range(4):
        cluster.broker.faults.on_next_end(NAME, fault)
        log.log.append(log.pause(number))
        if late:
            cluster.broker.deliver_late_ends()
    reasons = [d.reason for d in decisions(cluster) if isinstance(d, TaggingPaused)]
    assert reasons == ["p0", "p1", "p2", "p3"]
    assert [a.entry for a in log.seen if isinstance(a.entry, TaggingPaused)] == [
        log.pause(number) for number in range(4)
    ]


def test_lost_messages_and_acknowledgements_are_appended_again(cluster: MemoryCluster) -> None:
    log = Log(cluster)
    cluster.broker.faults.lose_messages(EPOCHS.topic)
    log.log.append(log.pause(1))
    cluster.broker.faults.lose_acknowledgements(EPOCHS.topic, 2)
    log.log.append(log.pause(2))
    assert [d.reason for d in decisions(cluster) if isinstance(d, TaggingPaused)] == ["p1", "p2"]


def test_a_torn_transaction_gets_only_what_it_lacks(cluster: MemoryCluster) -> None:
    """A late end of the transaction before commits the first entry alone; the second is then refused."""
    log = Log(cluster)
    log.log.append(log.plan())
    cluster.broker.faults.on_next_end(NAME, EndFault.DUPLICATED_LATE_UNNOTICED)
    log.log.append(log.pause(1))
    produce, count = type(log.log._producer).produce, [0]
    torn = type(log.log._producer)

    def tearing(producer: object, *args: object, **kwargs: object) -> object:
        count[0] += 1
        if count[0] == 2:
            producer.flush()  # type: ignore[attr-defined]
            cluster.broker.deliver_late_ends()
        return produce(producer, *args, **kwargs)  # type: ignore[arg-type]

    torn.produce = tearing  # type: ignore[method-assign]
    try:
        log.log.append(AttemptVoided(log.log.term, 1, 1, "x"), Rewound(log.log.term, 1, -1, "0", "x"))
    finally:
        torn.produce = produce  # type: ignore[method-assign]
    kinds = [type(d).__name__ for d in decisions(cluster)]
    assert kinds.count("AttemptVoided") == kinds.count("Rewound") == 1
    assert log.reader.fold.state.generation == 1


def test_two_entries_that_arrive_in_two_polls_are_recognised(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(cluster)
    log.log.append(log.plan())
    poll, held = FoldReader.poll, list[Applied]()

    def one_by_one(reader: FoldReader, timeout_s: float) -> list[Applied]:
        held.extend(poll(reader, timeout_s))
        return [held.pop(0)] if held else []

    monkeypatch.setattr(FoldReader, "poll", one_by_one)
    before = cluster.clock.monotonic_s()
    log.log.append(AttemptVoided(log.log.term, 1, 1, "x"), Rewound(log.log.term, 1, -1, "0", "x"))
    assert cluster.clock.monotonic_s() - before < 1
    assert len(decisions(cluster)) == 4


def test_an_append_without_an_answer_is_settled_before_the_next_decision(cluster: MemoryCluster) -> None:
    log = Log(cluster)
    planned = log.plan()
    commit = type(log.log._producer).commit

    def broker_goes_away(producer: object, *args: float) -> None:
        commit(producer, *args)  # type: ignore[arg-type]
        cluster.broker.stop()

    type(log.log._producer).commit = broker_goes_away  # type: ignore[method-assign]
    try:
        with pytest.raises(KafkaError):
            log.log.append(planned)
    finally:
        type(log.log._producer).commit = commit  # type: ignore[method-assign]
    with pytest.raises(KafkaError):
        log.log.settle()
    cluster.broker.start()
    assert log.reader.fold.state.planned is None
    log.log.settle()
    assert log.reader.fold.state.planned == planned


def test_settling_reads_to_the_end_and_not_only_what_one_poll_brings(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry in doubt may lie behind more than a poll holds, or arrive after it."""
    log = Log(cluster)
    planned = log.plan()
    commit = type(log.log._producer).commit

    def broker_goes_away(producer: object, *args: float) -> None:
        commit(producer, *args)  # type: ignore[arg-type]
        cluster.broker.stop()

    monkeypatch.setattr(type(log.log._producer), "commit", broker_goes_away)
    with pytest.raises(KafkaError):
        log.log.append(planned)
    cluster.broker.start()
    poll, polls = FoldReader.poll, [0]

    def nothing_at_first(reader: FoldReader, timeout_s: float) -> list[Applied]:
        polls[0] += 1
        return poll(reader, timeout_s) if polls[0] > 2 else []

    monkeypatch.setattr(FoldReader, "poll", nothing_at_first)
    log.log.settle()
    assert log.reader.fold.state.planned == planned


def test_a_superseded_log_appends_nothing(cluster: MemoryCluster) -> None:
    old = Log(cluster, "old")
    new = Log(cluster, "new")
    with pytest.raises(SupersededError):
        old.log.append(old.pause(1))
    new.log.append(new.pause(2))
    with pytest.raises(SupersededError):
        old.log.append(old.pause(3))
    assert [d.reason for d in decisions(cluster) if isinstance(d, TaggingPaused)] == ["p2"]


def test_a_look_at_the_term_tells_a_replaced_coordinator_from_one_that_lost_its_lock(
    cluster: MemoryCluster,
) -> None:
    old = Log(cluster, "old")
    old.log.check_term()
    Log(cluster, "new")
    with pytest.raises(SupersededError):
        old.log.check_term()


def test_a_transaction_that_ran_out_of_time_is_not_taken_for_a_successor(cluster: MemoryCluster) -> None:
    log = Log(cluster)
    cluster.broker.faults.lose_messages(EPOCHS.topic)  # flush waits 30 s, the broker ends it after 10
    before = cluster.clock.monotonic_s()
    log.log.append(log.pause(1))
    assert cluster.clock.monotonic_s() - before > 30
    assert [d.reason for d in decisions(cluster) if isinstance(d, TaggingPaused)] == ["p1"]


def test_a_claim_that_ran_out_of_time_is_made_again(cluster: MemoryCluster) -> None:
    cluster.broker.faults.lose_messages(EPOCHS.topic)
    log = Log(cluster, "slow")
    assert [d.owner for d in decisions(cluster) if isinstance(d, CoordinatorClaimed)] == ["slow"]
    log.log.append(log.pause(1))


@pytest.mark.parametrize("lost", ["produce", EndFault.LOST_REQUEST, EndFault.LOST_ANSWER])
def test_a_claim_without_an_answer_is_looked_for_and_made_again(
    cluster: MemoryCluster, lost: str | EndFault
) -> None:
    faults = cluster.broker.faults
    if isinstance(lost, EndFault):
        faults.on_next_end(NAME, lost)
    else:
        faults.on_next_request(NAME, ClientRequest.ADD_PARTITIONS, RequestFault.UNANSWERED)
    log = Log(cluster, "slow")
    assert [d.owner for d in decisions(cluster) if isinstance(d, CoordinatorClaimed)] == ["slow"]
    assert log.reader.fold.state.coordinator_term == log.log.term
    log.log.append(log.pause(1))


def test_claims_that_never_get_an_answer_end_loudly(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def timed_out(log: DecisionsLog, values: list[bytes]) -> None:
        tries.append(log._producer)
        raise AbortableError("Produce timed out")

    monkeypatch.setattr(DecisionsLog, "_transact", timed_out)
    with pytest.raises(DeadlineExceededError, match="5 claims in a row"):
        Log(cluster)
    assert len({id(each) for each in tries}) == len(tries) == 5


def test_a_claim_that_the_broker_refuses_for_good_is_not_repeated(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def refused(log: DecisionsLog, values: list[bytes]) -> None:
        tries.append(values)
        raise MissingTopicError("no such topic")

    monkeypatch.setattr(DecisionsLog, "_transact", refused)
    with pytest.raises(MissingTopicError):
        Log(cluster)
    assert len(tries) == 1


def test_a_claim_that_a_successor_fenced_gives_way(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = DecisionsLog._transact

    def other_takes_the_id_first(log: DecisionsLog, values: list[bytes]) -> None:
        monkeypatch.setattr(DecisionsLog, "_transact", transact)
        Log(cluster, "other")
        transact(log, values)

    monkeypatch.setattr(DecisionsLog, "_transact", other_takes_the_id_first)
    with pytest.raises(SupersededError, match="meanwhile"):
        Log(cluster, "first")
    assert [d.owner for d in decisions(cluster) if isinstance(d, CoordinatorClaimed)] == ["other"]


@pytest.mark.parametrize(
    "error", [KafkaConfigError("no WRITE on t.epochs"), MissingTopicError("no such topic")], ids=type
)
def test_a_decision_that_the_broker_refuses_is_a_refusal_after_one_try(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, error: KafkaError
) -> None:
    log, tries = Log(cluster), []

    def refused(log: DecisionsLog, values: list[bytes]) -> None:
        tries.append(log._producer)
        raise error

    with monkeypatch.context() as refusing:
        refusing.setattr(DecisionsLog, "_transact", refused)
        with pytest.raises(type(error), match=str(error)):
            log.log.append(log.pause(1))
    assert len(tries) == 1
    log.log.append(log.pause(2))
    assert [d.reason for d in decisions(cluster) if isinstance(d, TaggingPaused)] == ["p2"]


def test_a_decision_that_is_in_the_topic_counts_though_the_broker_refused(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, transact = Log(cluster), DecisionsLog._transact

    def refused_behind_it(log: DecisionsLog, values: list[bytes]) -> None:
        transact(log, values)
        raise KafkaConfigError("no WRITE on t.epochs")

    monkeypatch.setattr(DecisionsLog, "_transact", refused_behind_it)
    log.log.append(log.pause(1))
    assert [d.reason for d in decisions(cluster) if isinstance(d, TaggingPaused)] == ["p1"]


def test_a_stale_term_is_refused_by_the_fold_even_with_a_live_producer(cluster: MemoryCluster) -> None:
    log = Log(cluster)
    cluster.decide(CoordinatorClaimed("somebody else"))
    with pytest.raises(SupersededError, match="newer"):
        log.log.append(log.pause(1))
    assert log.seen[-1].verdict is Verdict.STALE_COORDINATOR


def test_a_decision_that_does_not_follow_is_a_loud_error(cluster: MemoryCluster) -> None:
    log = Log(cluster)
    log.log.append(log.plan())
    with pytest.raises(OutOfPlaceError, match="EpochPlanned"):
        log.log.append(log.plan(attempt=2))


def test_only_one_of_two_claims_at_the_same_time_stands(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    transact = DecisionsLog._transact

    def other_claims_right_after(log: DecisionsLog, values: list[bytes]) -> None:
        monkeypatch.setattr(DecisionsLog, "_transact", transact)
        transact(log, values)
        Log(cluster, "other")

    monkeypatch.setattr(DecisionsLog, "_transact", other_claims_right_after)
    with pytest.raises(SupersededError):
        Log(cluster, "first")
