"""One cluster whose faults can be ordered: the real one through a proxy, the in-memory one by its own
switches.

Each order is for the next request of its kind. `late_*` requests arrive when the test lets them.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from testing.kafka import ClientRequest, EndFault, MemoryBroker, MessageFault, RequestFault
from tests.contract.kafka_cluster import WAIT_S, KafkaCluster
from tests.faults.kafka_proxy import OK, Fault, KafkaProxy, Rule
from tests.faults.kafka_wire import Api
from tidemark.stream_runtime.kafka.ports import KafkaClient, TopicPartition
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.retry import Deadline

TRANSACTION_TIMEOUT_S = 30.0
HASTY_TIMEOUT_S = 1.0
_SLOW_S = 1.3
_UNANSWERED_TIMES = 1_000
"""librdkafka asks again when an answer does not come: what is lost is lost as often as it tries."""
_API = {
    ClientRequest.INIT: Api.INIT_PRODUCER_ID,
    ClientRequest.ADD_PARTITIONS: Api.ADD_PARTITIONS_TO_TXN,
    ClientRequest.ADD_OFFSETS: Api.ADD_OFFSETS_TO_TXN,
}
_END_FAULTS = {
    EndFault.DUPLICATED_LATE: Fault.HOLD_AND_CUT,
    EndFault.DUPLICATED_LATE_UNNOTICED: Fault.COPY,
    EndFault.LOST_REQUEST: Fault.DROP,
    EndFault.LOST_ANSWER: Fault.LOSE_ANSWER,
    EndFault.LATE_REQUEST: Fault.HOLD,
    EndFault.SLOW: Fault.DELAY_ANSWER,
}
_MESSAGE_FAULTS = {
    MessageFault.LOST_REQUEST: Fault.DROP,
    MessageFault.LOST_ANSWER: Fault.LOSE_ANSWER,
    MessageFault.REPEATED: Fault.LOSE_ANSWER_AND_CUT,
    MessageFault.LATE_REQUEST: Fault.HOLD,
    MessageFault.DUPLICATED_LATE: Fault.COPY,
}
_REQUEST_FAULTS = {
    RequestFault.REPEATED: Fault.LOSE_ANSWER_AND_CUT,
    RequestFault.UNANSWERED: Fault.DROP,
}


@dataclass
class FaultCluster(KafkaCluster, ABC):
    """What both can do. `hasty`: a client whose transactions time out after HASTY_TIMEOUT_S."""

    hasty: KafkaClient = field(kw_only=True)

    @abstractmethod
    def on_next_end(self, transactional_id: str, fault: EndFault) -> None: ...

    @abstractmethod
    def on_next_message(self, topic: str, fault: MessageFault) -> None: ...

    @abstractmethod
    def on_next_request(self, transactional_id: str, request: ClientRequest, fault: RequestFault) -> None: ...

    @abstractmethod
    def deliver_late_ends(self) -> int:
        """Held ends arrive; how many the broker obeyed."""

    @abstractmethod
    def deliver_late_messages(self, topic_partition: TopicPartition) -> int:
        """Held messages arrive; how many were stored."""

    @abstractmethod
    def expire_transactions(self, topic_partition: TopicPartition) -> None:
        """Waits until the broker has aborted what is open in the partition for too long."""

    @abstractmethod
    def leader_away(self, topic: str, seconds: float) -> None:
        """From now on for so long no leader can be reached; returns at once."""

    @abstractmethod
    def heal(self) -> None:
        """What was ordered and goes on is over."""

    @abstractmethod
    def stop(self) -> None:
        """kill -9 of the broker."""

    @abstractmethod
    def start(self) -> None:
        """On the same data."""

    def visible(self, topic_partition: TopicPartition) -> list[bytes | None]:
        """All values that a new reader is given, once no transaction is open any more."""
        end = self.end_of(topic_partition)
        self.await_end("the last marker", lambda: self.stable_end_of(topic_partition) >= end)
        reader = self.reader()
        reader.assign({topic_partition: 0})
        values: list[bytes | None] = []
        deadline = Deadline(self.clock, WAIT_S)
        while reader.position(topic_partition) < end:
            deadline.check(f"offset {end}")
            values += [message.value for message in reader.poll(100, 0.2)]
        return values


@dataclass
class MemoryFaultCluster(FaultCluster):
    def _broker(self) -> MemoryBroker:
        assert self.memory is not None
        return self.memory

    def on_next_end(self, transactional_id: str, fault: EndFault) -> None:
        self._broker().faults.on_next_end(transactional_id, fault)

    def on_next_message(self, topic: str, fault: MessageFault) -> None:
        self._broker().faults.on_next_message(topic, fault)

    def on_next_request(self, transactional_id: str, request: ClientRequest, fault: RequestFault) -> None:
        self._broker().faults.on_next_request(transactional_id, request, fault)

    def deliver_late_ends(self) -> int:
        return self._broker().deliver_late_ends()

    def deliver_late_messages(self, topic_partition: TopicPartition) -> int:
        return self._broker().deliver_late_messages()

    def expire_transactions(self, topic_partition: TopicPartition) -> None:
        self.clock.sleep(2 * HASTY_TIMEOUT_S)

    def leader_away(self, topic: str, seconds: float) -> None:
        self._broker().faults.leaders_away_until(topic, self.clock.monotonic_s() + seconds)

    def heal(self) -> None:
        return None

    def stop(self) -> None:
        self._broker().stop()

    def start(self) -> None:
        self._broker().start()


@dataclass
class ProxiedFaultCluster(FaultCluster):
    """`client` goes through `proxy`; the broker is the test module's own."""

    proxy: KafkaProxy = field(kw_only=True)
    kafka: EmbeddedKafka = field(kw_only=True)
    _ends: list[Rule] = field(default_factory=list)
    _messages: list[Rule] = field(default_factory=list)

    def on_next_end(self, transactional_id: str, fault: EndFault) -> None:
        kind = _END_FAULTS[fault]
        rule = self.proxy.on(Api.END_TXN, kind, transactional_id=transactional_id, seconds=_SLOW_S)
        self._ends.append(rule)

    def on_next_message(self, topic: str, fault: MessageFault) -> None:
        lost = fault in (MessageFault.LOST_REQUEST, MessageFault.LOST_ANSWER)
        times = _UNANSWERED_TIMES if lost else 1
        self._messages.append(self.proxy.on(Api.PRODUCE, _MESSAGE_FAULTS[fault], topic=topic, times=times))

    def on_next_request(self, transactional_id: str, request: ClientRequest, fault: RequestFault) -> None:
        times = _UNANSWERED_TIMES if fault is RequestFault.UNANSWERED else 1
        kind = _REQUEST_FAULTS[fault]
        self.proxy.on(_API[request], kind, transactional_id=transactional_id, times=times)

    def deliver_late_ends(self) -> int:
        return sum(rule.release() == [OK] for rule in self._ends for _ in range(rule.holds))

    def deliver_late_messages(self, topic_partition: TopicPartition) -> int:
        before = self.end_of(topic_partition)
        for rule in self._messages:
            for _ in range(rule.holds):
                rule.release()
        return self.end_of(topic_partition) - before

    def expire_transactions(self, topic_partition: TopicPartition) -> None:
        # Asked anew in each look: the abort may come before the first one, and its marker counts then.
        self.await_end(
            "the broker's abort", lambda: self.stable_end_of(topic_partition) >= self.end_of(topic_partition)
        )

    def leader_away(self, topic: str, seconds: float) -> None:
        self.proxy.refuse()
        timer = threading.Timer(seconds, self.proxy.heal)
        timer.daemon = True
        timer.start()

    def heal(self) -> None:
        self.proxy.forget_rules()

    def stop(self) -> None:
        self.kafka.kill()

    def start(self) -> None:
        self.kafka.start_node(1)

    def close(self) -> None:
        super().close()
        self.proxy.close()
