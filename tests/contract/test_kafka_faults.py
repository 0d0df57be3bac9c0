"""What a client is told, and what the logs hold, when requests are late, lost or doubled: alike on both
brokers.

Transactions are the product's own: ledger first and last, the producer replaced after any doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from testing.kafka import ClientRequest, EndFault, MessageFault, RequestFault
from tests.contract.fault_cluster import FaultCluster
from tests.contract.kafka_cluster import WAIT_S, send
from tidemark.stream_runtime.kafka.errors import AbortableError, FencedError, KafkaError, ProducerFatalError
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerStep,
    LedgerTransaction,
    OutgoingMessage,
    TransactionOutcome,
    TransactionResult,
)
from tidemark.stream_runtime.kafka.ports import TransactionalProducer

COMMITTED, ABORTED, UNKNOWN = TransactionOutcome
# Seconds for a flush and for an end. Patient: sees a connection come again. The others ask nothing twice:
# messages without an answer, or (once every message is there) an end without one.
PATIENT = (25.0, 25.0)
NO_FLUSH_TWICE = (0.6, 0.8)
NO_END_TWICE = (20.0, 0.8)
_HASTY_TRIES = 5


class Scene:
    """A ledger, a data topic and an id of the test's own."""

    def __init__(self, cluster: FaultCluster) -> None:
        self.cluster = cluster
        self.ledger, self.data, self.source = (cluster.partition() for _ in range(3))
        self.name = cluster.transactional_id()
        self.group = f"{cluster.unique}-{self.name}"

    def producer(self) -> TransactionalProducer:
        return self.cluster.producer(self.name)

    def hasty_producer(self) -> TransactionalProducer:
        producer = self.cluster.hasty.producer(self.name)
        producer.init(WAIT_S)
        return producer

    def run(
        self,
        producer: TransactionalProducer,
        value: bytes,
        reached: Callable[[LedgerStep], None] = lambda _: None,
        consumed: int | None = None,
        timeouts_s: tuple[float, float] = PATIENT,
    ) -> TransactionResult:
        transaction = LedgerTransaction(producer, self.ledger, *timeouts_s, reached)

        def entry(offsets: Sequence[int]) -> bytes:
            return b"entry " + value

        positions = None if consumed is None else {self.source: consumed}
        return transaction.run(
            b"begun " + value, [OutgoingMessage(self.data, value)], entry, positions, self.group
        )

    def entries(self) -> list[bytes]:
        values = self.cluster.visible(self.ledger)
        return [value.split()[1] for value in values if value is not None and value.startswith(b"entry")]

    def check(self, *values: bytes, unnamed: Sequence[bytes] = ()) -> None:
        """A successor goes on; the ledger names these and its own, and all that is named is there, once."""
        again = self.run(self.producer(), b"again")
        assert again.outcome is COMMITTED, again.error
        assert self.entries() == [*values, b"again"]
        assert self.cluster.visible(self.data) == [
            *sorted([*values, *unnamed], key=_ORDER.index),
            b"again",
        ]


_ORDER = [b"one", b"two", b"again"]


@pytest.fixture
def scene(fault_cluster: FaultCluster) -> Scene:
    return Scene(fault_cluster)


def at(step: LedgerStep, act: Callable[[], object]) -> Callable[[LedgerStep], None]:
    def reached(place: LedgerStep) -> None:
        if place is step:
            act()

    return reached


def first(scene: Scene, producer: TransactionalProducer, fault: EndFault, commits: bool) -> None:
    """A transaction with one message, ended under the fault."""
    scene.cluster.on_next_end(scene.name, fault)
    if commits:
        assert scene.run(producer, b"one").outcome is COMMITTED
    else:
        producer.begin()
        send(producer, scene.data, b"one")
        producer.abort()


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_late_end_without_the_defences_tears_the_next_transaction(scene: Scene, commits: bool):
    cluster, producer = scene.cluster, scene.producer()
    cluster.on_next_end(scene.name, EndFault.DUPLICATED_LATE)
    producer.begin()
    send(producer, scene.data, b"one")
    producer.commit() if commits else producer.abort()
    assert producer.doubtful
    producer.begin()
    send(producer, scene.data, b"two")
    assert cluster.deliver_late_ends() == 1
    cluster.await_end("the leaked marker", lambda: cluster.stable_end_of(scene.data) == 4)
    send(producer, scene.ledger, b"entry two")
    producer.abort() if commits else producer.commit()
    # Late commit: data of an aborted transaction. Late abort: an entry, and nothing of what it names.
    assert cluster.visible(scene.data) == ([b"one", b"two"] if commits else [])
    assert cluster.visible(scene.ledger) == ([] if commits else [b"entry two"])


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
def test_late_end_of_a_replaced_producer_is_powerless(scene: Scene, commits: bool):
    producer = scene.producer()
    first(scene, producer, EndFault.DUPLICATED_LATE, commits)
    assert producer.doubtful
    effects: list[int] = []
    result = scene.run(
        scene.producer(),
        b"two",
        at(LedgerStep.ENTRY, lambda: effects.append(scene.cluster.deliver_late_ends())),
    )
    assert effects == [0]
    assert result.outcome is COMMITTED
    scene.check(*([b"one"] if commits else []), b"two")


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("step", [LedgerStep.BATCHES, LedgerStep.ENTRY])
@pytest.mark.usefixtures("unhurried_ends")
def test_late_end_that_nobody_noticed_is_never_named(scene: Scene, commits: bool, step: LedgerStep):
    cluster, producer = scene.cluster, scene.producer()
    first(scene, producer, EndFault.DUPLICATED_LATE_UNNOTICED, commits)
    assert not producer.doubtful
    effects: list[int] = []

    def arrive() -> None:
        end = cluster.end_of(scene.ledger)
        effects.append(cluster.deliver_late_ends())
        cluster.await_end("the leaked marker", lambda: cluster.stable_end_of(scene.ledger) > end)

    result = scene.run(producer, b"two", at(step, arrive))
    assert effects == [1]
    assert result.outcome is not COMMITTED
    assert result.replace_producer
    leaked = [b"two"] if commits and step is LedgerStep.ENTRY else []
    scene.check(*([b"one"] if commits else []), unnamed=leaked)


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("step", [LedgerStep.ENTRY, LedgerStep.COMMIT])
def test_entry_in_front_of_a_leaked_marker_shares_its_fate_with_its_batches(
    scene: Scene, commits: bool, step: LedgerStep
):
    cluster, producer = scene.cluster, scene.producer()
    first(scene, producer, EndFault.DUPLICATED_LATE_UNNOTICED, commits)
    effects: list[int] = []
    result = scene.run(producer, b"two", at(step, lambda: effects.append(cluster.deliver_late_ends())))
    assert effects == [1]
    if step is LedgerStep.COMMIT:
        # Written before the end leaked in: it has come true if that was a commit too.
        assert (result.outcome is COMMITTED) is commits
    # Whoever wins the race between marker and entry: what is reported is so, and what is named is there.
    scene.producer()
    named = b"two" in scene.entries()
    assert named is (result.outcome is COMMITTED)
    assert b"two" in cluster.visible(scene.data) or not named


@pytest.mark.parametrize("fault", [EndFault.LOST_REQUEST, EndFault.LOST_ANSWER, EndFault.LATE_REQUEST])
def test_unanswered_commit_is_unknown_and_the_ledger_tells_after_a_new_init(scene: Scene, fault: EndFault):
    producer = scene.producer()
    scene.cluster.on_next_end(scene.name, fault)
    result = scene.run(producer, b"one", timeouts_s=NO_END_TWICE)
    assert result.outcome is UNKNOWN
    assert result.replace_producer
    if fault is EndFault.LOST_ANSWER:
        # The message and its marker: a successor that inits before the request has come aborts it.
        scene.cluster.await_end("the commit", lambda: scene.cluster.stable_end_of(scene.data) == 2)
    scene.producer()
    assert scene.cluster.deliver_late_ends() == 0
    scene.check(*([b"one"] if fault is EndFault.LOST_ANSWER else []))


def test_slow_commit_is_committed_and_replaces_the_producer(scene: Scene):
    scene.cluster.on_next_end(scene.name, EndFault.SLOW)
    result = scene.run(scene.producer(), b"one")
    assert result.outcome is COMMITTED
    assert result.replace_producer
    scene.check(b"one")


# ---------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("fault", "topic"), [(MessageFault.LOST_REQUEST, "ledger"), (MessageFault.LOST_ANSWER, "data")]
)
def test_message_without_an_answer_aborts(scene: Scene, fault: MessageFault, topic: str):
    scene.cluster.on_next_message(getattr(scene, topic).topic, fault)
    result = scene.run(scene.producer(), b"one", timeouts_s=NO_FLUSH_TWICE)
    assert result.outcome is ABORTED
    assert result.replace_producer
    scene.cluster.heal()
    scene.check()


@pytest.mark.parametrize("topic", ["ledger", "data"])
def test_message_that_was_sent_twice_is_stored_once(scene: Scene, topic: str):
    scene.cluster.on_next_message(getattr(scene, topic).topic, MessageFault.REPEATED)
    result = scene.run(scene.producer(), b"one")
    assert result.outcome is COMMITTED
    assert result.replace_producer
    assert result.offsets == (0,)
    scene.check(b"one")


def test_copy_of_a_message_that_comes_before_the_commit_is_not_stored(scene: Scene):
    cluster, stored = scene.cluster, list[int]()
    cluster.on_next_message(scene.data.topic, MessageFault.DUPLICATED_LATE)
    late = at(LedgerStep.COMMIT, lambda: stored.append(cluster.deliver_late_messages(scene.data)))
    assert scene.run(scene.producer(), b"one", late).outcome is COMMITTED
    assert stored == [0]
    scene.check(b"one")


def test_copy_of_a_message_that_comes_after_the_next_transaction_is_not_stored(scene: Scene):
    cluster, producer = scene.cluster, scene.producer()
    cluster.on_next_message(scene.data.topic, MessageFault.DUPLICATED_LATE)
    for value in (b"one", b"two"):
        assert scene.run(producer, value).outcome is COMMITTED
    cluster.await_end("the markers", lambda: cluster.stable_end_of(scene.data) == 4)
    assert cluster.deliver_late_messages(scene.data) == 0
    assert cluster.stable_end_of(scene.data) == cluster.end_of(scene.data)
    scene.check(b"one", b"two")


def test_copy_of_a_message_that_comes_in_front_of_the_next_one_costs_that_transaction(scene: Scene):
    cluster, producer = scene.cluster, scene.producer()
    stored: list[int] = []
    cluster.on_next_message(scene.data.topic, MessageFault.DUPLICATED_LATE)
    assert scene.run(producer, b"one").outcome is COMMITTED
    cluster.await_end("the marker", lambda: cluster.stable_end_of(scene.data) == 2)
    late = at(LedgerStep.BATCHES, lambda: stored.append(cluster.deliver_late_messages(scene.data)))
    result = scene.run(producer, b"two", late)
    assert stored == [0]
    # The broker keeps the refused copy's sequence number in mind and takes the next one for a gap.
    assert result.outcome is ABORTED
    assert isinstance(result.error, ProducerFatalError), result.error
    assert result.replace_producer
    scene.check(b"one")


def test_message_that_comes_late_cannot_enter_the_next_transaction(scene: Scene):
    cluster = scene.cluster
    cluster.on_next_message(scene.data.topic, MessageFault.LATE_REQUEST)
    result = scene.run(scene.producer(), b"one", timeouts_s=NO_FLUSH_TWICE)
    assert result.outcome is ABORTED
    assert result.replace_producer
    producer = scene.producer()
    producer.begin()
    send(producer, scene.ledger, b"begun two")
    send(producer, scene.data, b"two")
    assert cluster.deliver_late_messages(scene.data) == 0
    send(producer, scene.ledger, b"entry two")
    producer.commit()
    scene.check(b"two")


def test_message_that_comes_after_its_transaction_leaves_none_open(scene: Scene):
    cluster = scene.cluster
    cluster.on_next_message(scene.data.topic, MessageFault.LATE_REQUEST)
    assert scene.run(scene.producer(), b"one", timeouts_s=NO_FLUSH_TWICE).outcome is ABORTED
    scene.producer()
    assert cluster.deliver_late_messages(scene.data) == 0
    assert cluster.stable_end_of(scene.data) == cluster.end_of(scene.data)
    scene.check()


# ---------------------------------------------------------------- the producer's other requests


@pytest.mark.parametrize("request_", [ClientRequest.ADD_PARTITIONS, ClientRequest.ADD_OFFSETS])
def test_repeated_registration_goes_on_and_replaces_the_producer(scene: Scene, request_: ClientRequest):
    producer = scene.producer()
    scene.cluster.on_next_request(scene.name, request_, RequestFault.REPEATED)
    result = scene.run(producer, b"one", consumed=7)
    assert result.outcome is COMMITTED
    assert result.replace_producer
    scene.cluster.await_position(scene.group, scene.source, 7)
    scene.check(b"one")


def test_unanswered_registration_of_a_partition_aborts(scene: Scene):
    producer = scene.producer()
    scene.cluster.on_next_request(scene.name, ClientRequest.ADD_PARTITIONS, RequestFault.UNANSWERED)
    result = scene.run(producer, b"one", timeouts_s=NO_FLUSH_TWICE)
    assert result.outcome is ABORTED
    assert result.replace_producer
    scene.cluster.heal()
    scene.check()


def test_unanswered_registration_of_offsets_is_unknown_and_commits_nothing(scene: Scene):
    producer = scene.producer()
    scene.cluster.on_next_request(scene.name, ClientRequest.ADD_OFFSETS, RequestFault.UNANSWERED)
    result = scene.run(producer, b"one", consumed=7, timeouts_s=NO_END_TWICE)
    assert result.outcome is UNKNOWN
    assert result.replace_producer
    scene.cluster.heal()
    scene.check()
    assert scene.cluster.admin().committed_offsets(scene.group, [scene.source]) == {}


def test_repeated_init_gives_a_producer_that_works(scene: Scene):
    scene.cluster.on_next_request(scene.name, ClientRequest.INIT, RequestFault.REPEATED)
    assert scene.run(scene.producer(), b"one").outcome is COMMITTED
    scene.check(b"one")


# ---------------------------------------------------------------- fences and times


@pytest.mark.parametrize("step", [LedgerStep.BATCHES, LedgerStep.ENTRY, LedgerStep.COMMIT])
def test_transaction_that_ran_out_of_time_is_fenced_and_holds_nobody_back(scene: Scene, step: LedgerStep):
    expired = at(step, lambda: scene.cluster.expire_transactions(scene.ledger))
    for _ in range(_HASTY_TRIES):
        result = scene.run(scene.hasty_producer(), b"one", expired)
        assert result.outcome is not COMMITTED
        # Its messages have no more time than the transaction: a pause may end it by one of them.
        if not isinstance(result.error, AbortableError):
            break
    assert isinstance(result.error, FencedError), result.error
    assert result.replace_producer
    scene.check()


def test_zombie_that_wakes_up_is_fenced_before_anything_of_it_counts(scene: Scene):
    zombie = scene.producer()
    zombie.begin()
    send(zombie, scene.ledger, b"begun one")
    send(zombie, scene.data, b"one")
    assert scene.run(scene.producer(), b"two").outcome is COMMITTED
    zombie.produce(scene.ledger, b"entry one")
    with pytest.raises(KafkaError):
        zombie.flush(WAIT_S)
    with pytest.raises(FencedError):
        zombie.commit(WAIT_S)
    scene.check(b"two")


def test_partition_without_a_leader_is_waited_for(scene: Scene):
    producer = scene.producer()
    away = at(LedgerStep.BATCHES, lambda: scene.cluster.leader_away(scene.data.topic, 0.5))
    result = scene.run(producer, b"one", away)
    assert result.outcome is COMMITTED, result.error
    scene.check(b"one")


def test_broker_that_dies_in_a_transaction_and_comes_back_keeps_what_it_acknowledged(scene: Scene):
    producer = scene.producer()
    assert scene.run(producer, b"one").outcome is COMMITTED
    result = scene.run(
        producer, b"two", at(LedgerStep.BATCHES, scene.cluster.stop), timeouts_s=NO_FLUSH_TWICE
    )
    assert result.outcome is not COMMITTED
    assert result.replace_producer
    producer.close()
    scene.cluster.start()
    scene.check(b"one")
