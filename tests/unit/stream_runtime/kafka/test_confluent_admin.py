"""What the admin client does with answers that a broker gives for a moment only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaException
from confluent_kafka import KafkaError as ClientError

from testing.clock import ManualClock
from tidemark.stream_runtime.kafka.confluent.admin import ConfluentAdmin
from tidemark.stream_runtime.kafka.confluent.refused_login import RefusedLogin
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.errors import (
    KafkaConfigError,
    KafkaUnavailableError,
    LeaderChangingError,
    MissingTopicError,
)
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition, TopicSpec, TopicState

AT = TopicPartition("t", 0)
SETTINGS = ClientSettings({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, 1 << 20, 10_000)


class Offset:
    offset = 7


class LostAnswer:
    """What librdkafka makes of a request to a leader that ended without an answer: no error, and this."""

    offset = OFFSET_INVALID


class ScriptedAdmin:
    """Answers `list_offsets` with errors first, then with offset 7; `errors` None: with nothing else.

    `code` None: the first answers are lost.
    """

    def __init__(self, code: int | None, errors: int | None) -> None:
        self.calls = 0
        self.refreshed: list[str] = []
        self._code = code
        self._errors = errors

    def list_offsets(self, requests: Any, **_: Any) -> dict[Any, Future[Any]]:
        self.calls += 1
        future: Future[Any] = Future()
        if self._errors is not None and self.calls > self._errors:
            future.set_result(Offset())
        elif self._code is None:
            future.set_result(LostAnswer())
        else:
            future.set_exception(KafkaException(ClientError(self._code)))
        return dict.fromkeys(requests, future)

    def list_topics(self, topic: str, **_: Any) -> None:
        self.refreshed.append(topic)


def admin_over(
    script: ScriptedAdmin,
    monkeypatch: pytest.MonkeyPatch,
    successor: ScriptedAdmin | None = None,
    clock: ManualClock | None = None,
) -> ConfluentAdmin:
    """`successor`: what a new client answers."""
    clients = [script]
    monkeypatch.setattr(
        ConfluentAdmin, "_new_client", lambda _: clients.pop() if clients else successor or script
    )
    return ConfluentAdmin(SETTINGS, clock or ManualClock())


@pytest.mark.parametrize(
    "code",
    [
        ClientError.UNKNOWN_LEADER_EPOCH,
        ClientError.NOT_LEADER_FOR_PARTITION,
        ClientError.LEADER_NOT_AVAILABLE,
        ClientError.FENCED_LEADER_EPOCH,
        ClientError._TIMED_OUT,
        None,
    ],
)
def test_offsets_are_asked_again_of_the_new_leader_while_it_changes(
    code: int | None, monkeypatch: pytest.MonkeyPatch
):
    script = ScriptedAdmin(code, 3)
    assert admin_over(script, monkeypatch).end_offset(AT, Isolation.READ_COMMITTED) == 7
    assert script.calls == 4
    assert script.refreshed == ["t"] * 3


def test_a_client_that_stays_at_an_old_leader_epoch_is_replaced(monkeypatch: pytest.MonkeyPatch):
    stuck, fresh = ScriptedAdmin(ClientError.FENCED_LEADER_EPOCH, None), ScriptedAdmin(0, 0)
    admin = admin_over(stuck, monkeypatch, fresh)
    assert admin.end_offset(AT, Isolation.READ_COMMITTED) == 7
    assert (fresh.calls, fresh.refreshed) == (1, ["t"])


def test_a_leader_that_never_comes_is_an_error_within_a_bound(monkeypatch: pytest.MonkeyPatch):
    script = ScriptedAdmin(ClientError.UNKNOWN_LEADER_EPOCH, None)
    with pytest.raises(LeaderChangingError, match=r"offsets of t\[0\]"):
        admin_over(script, monkeypatch).end_offset(AT, Isolation.READ_COMMITTED)
    assert 10 < script.calls < 1_000


def test_who_cannot_wait_for_a_leader_is_answered_sooner(monkeypatch: pytest.MonkeyPatch):
    script = ScriptedAdmin(ClientError.UNKNOWN_LEADER_EPOCH, None)
    clock = ManualClock()
    began_s = clock.monotonic_s()
    with pytest.raises(LeaderChangingError):
        admin_over(script, monkeypatch, clock=clock).start_offset(AT, 3.0)
    assert 3.0 <= clock.monotonic_s() - began_s < 4.0


@pytest.mark.parametrize("ask", ["start_offset", "end_offset", "offsets_for_time"])
def test_an_answer_that_stays_lost_is_an_error_and_no_offset(ask: str, monkeypatch: pytest.MonkeyPatch):
    admin = admin_over(ScriptedAdmin(None, None), monkeypatch)
    asks: dict[str, Callable[[], object]] = {
        "start_offset": lambda: admin.start_offset(AT),
        "end_offset": lambda: admin.end_offset(AT, Isolation.READ_UNCOMMITTED),
        "offsets_for_time": lambda: admin.offsets_for_time([AT], 1),
    }
    with pytest.raises(KafkaUnavailableError, match=r"offsets of t\[0\]: the leader's answer was lost"):
        asks[ask]()


def test_other_errors_are_raised_at_once(monkeypatch: pytest.MonkeyPatch):
    script = ScriptedAdmin(ClientError.UNKNOWN_TOPIC_OR_PART, 1)
    with pytest.raises(MissingTopicError):
        admin_over(script, monkeypatch).start_offset(AT)
    assert script.calls == 1


class AtController:
    """A client whose requests to the controller all end as `ends` says, or with what was asked for."""

    def __init__(self, ends: KafkaException | None = None) -> None:
        self.asked: list[str] = []
        self._ends = ends

    def _answer(self, what: str, keys: Iterable[Any], answer: object) -> dict[Any, Future[Any]]:
        self.asked.append(what)
        future: Future[Any] = Future()
        if self._ends is None:
            future.set_result(answer)
        else:
            future.set_exception(self._ends)
        return dict.fromkeys(keys, future)

    def describe_topics(self, _: Any, **__: Any) -> dict[Any, Future[Any]]:
        return self._answer("describe", ["t"], SimpleNamespace(topic_id="an id", partitions=[0, 1]))

    def create_topics(self, _: Any, **__: Any) -> dict[Any, Future[Any]]:
        return self._answer("create", ["t"], None)

    def describe_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return self._answer("settings", resources, {"retention.ms": SimpleNamespace(value="7")})

    def incremental_alter_configs(self, resources: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        return self._answer("configure", resources, None)

    def list_topics(self, topic: str, **_: Any) -> Any:
        found = SimpleNamespace(error=None, partitions={n: SimpleNamespace(replicas=[1]) for n in range(2)})
        return SimpleNamespace(brokers={1: None}, topics={topic: found})

    def poll(self, timeout_s: float) -> int:
        return 0


TOPIC = TopicState(2, "an id")
ASKS_CONTROLLER: dict[str, tuple[Callable[[ConfluentAdmin], object], object]] = {
    "describe": (lambda admin: admin.topic_states(["t"]), {"t": TOPIC}),
    "create": (lambda admin: admin.create_topics([TopicSpec("t", 2)]), None),
    "settings": (lambda admin: admin.topic_settings(["t"]), {"t": {"retention.ms": "7"}}),
    "configure": (lambda admin: admin.configure_topic("t", {"retention.ms": "7"}), None),
}


@pytest.mark.parametrize("code", [ClientError._TRANSPORT, ClientError._TIMED_OUT])
@pytest.mark.parametrize("what", ASKS_CONTROLLER)
def test_a_client_whose_controller_died_is_replaced(what: str, code: int, monkeypatch: pytest.MonkeyPatch):
    """librdkafka waits for a controller that it knows until its metadata is refreshed, which is minutes."""
    stuck, fresh = AtController(KafkaException(ClientError(code))), AtController()
    clients = [stuck]
    monkeypatch.setattr(ConfluentAdmin, "_new_client", lambda _: clients.pop() if clients else fresh)
    ask, answer = ASKS_CONTROLLER[what]
    assert ask(ConfluentAdmin(SETTINGS, ManualClock())) == answer
    assert set(stuck.asked) == {what}
    assert fresh.asked == [what]


class Fenced(AtController):
    """A lone broker that the controller leaves out until it was asked to create a topic `late` times."""

    def __init__(self, late: int) -> None:
        super().__init__()
        self._late = late

    def create_topics(self, _: Any, **__: Any) -> dict[Any, Future[Any]]:
        is_out = self.asked.count("create") < self._late
        self._ends = KafkaException(ClientError(ClientError.INVALID_REPLICATION_FACTOR)) if is_out else None
        return super().create_topics(_)


@pytest.mark.parametrize(("late", "is_made"), [(3, True), (1_000, False)])
def test_brokers_that_do_not_count_yet_are_waited_for(
    late: int, is_made: bool, monkeypatch: pytest.MonkeyPatch
):
    """Heartbeats come late on a busy machine. The wait has an end: there may be too few for ever."""
    broker = Fenced(late)
    monkeypatch.setattr(ConfluentAdmin, "_new_client", lambda _: broker)
    admin = ConfluentAdmin(SETTINGS, ManualClock())
    with nullcontext() if is_made else pytest.raises(KafkaUnavailableError, match="creating topic t"):
        admin.create_topics([TopicSpec("t", 2)])
    assert broker.asked.count("create") == 4 if is_made else 10 < broker.asked.count("create") < 1_000


class Brokers:
    """Of `count` brokers the first `late` that are asked do not know the topic yet."""

    def __init__(self, count: int, late: int) -> None:
        self.asked = 0
        self._count, self._late = count, late

    def list_topics(self, topic: str, **_: Any) -> Any:
        self.asked += 1
        unknown = ClientError(ClientError.UNKNOWN_TOPIC_OR_PART) if self.asked <= self._late else None
        found = SimpleNamespace(error=unknown, partitions={0: None, 1: None})
        return SimpleNamespace(brokers=dict.fromkeys(range(self._count)), topics={topic: found})

    def poll(self, timeout_s: float) -> int:
        return 0


@pytest.mark.parametrize(
    ("count", "late", "found", "asked"), [(3, 2, 2, 3), (3, 99, None, 5), (1, 99, None, 1), (1, 0, 2, 1)]
)
def test_topic_is_missing_when_no_broker_of_several_comes_to_know_it(
    monkeypatch: pytest.MonkeyPatch, count: int, late: int, found: int | None, asked: int
):
    brokers = Brokers(count, late)
    monkeypatch.setattr(ConfluentAdmin, "_new_client", lambda _: brokers)
    assert ConfluentAdmin(SETTINGS, ManualClock()).partitions("t") == found
    assert brokers.asked == asked


@pytest.mark.parametrize(("wanted", "is_right"), [(2, True), (3, False)])
def test_a_topic_that_is_there_is_checked_when_brokers_know_of_it(
    monkeypatch: pytest.MonkeyPatch, wanted: int, is_right: bool
):
    """A request whose answer was lost made it a moment before."""

    class Existing(Brokers):
        def create_topics(self, _: Any, **__: Any) -> dict[str, Future[Any]]:
            future: Future[Any] = Future()
            future.set_exception(KafkaException(ClientError(ClientError.TOPIC_ALREADY_EXISTS)))
            return {"t": future}

    monkeypatch.setattr(ConfluentAdmin, "_new_client", lambda _: Existing(1, 3))
    admin = ConfluentAdmin(SETTINGS, ManualClock())
    with nullcontext() if is_right else pytest.raises(KafkaConfigError, match="2 partitions and 3"):
        admin.create_topics([TopicSpec("t", wanted)])


class Refusing:
    """A client whose calls fail as librdkafka's do; what came beside them is told when it is polled."""

    def __init__(
        self, refused: RefusedLogin, before: list[ClientError], meanwhile: list[ClientError]
    ) -> None:
        self._refused, self._beside, self._meanwhile = refused, before, meanwhile

    def list_topics(self, **_: Any) -> Any:
        self._beside = self._meanwhile
        raise TRANSPORT

    def poll(self, timeout_s: float) -> int:
        told, self._beside = self._beside, []
        for error in told:
            self._refused(error)
        return len(told)


TRANSPORT = KafkaException(ClientError(ClientError._TRANSPORT))
DENIED = ClientError(ClientError._AUTHENTICATION, "SASL authentication error: invalid credentials")
CUT_OFF = ClientError(ClientError._AUTHENTICATION, "SASL handshake failed: Local: Broker transport failure")


@pytest.mark.parametrize(
    ("before", "meanwhile", "told"),
    [([], [DENIED], True), ([DENIED], [], False), ([], [CUT_OFF], False), ([], [DENIED, CUT_OFF], True)],
)
def test_a_call_failed_for_a_refusal_only_if_one_came_during_it(
    before: list[ClientError], meanwhile: list[ClientError], told: bool
):
    refused = RefusedLogin()
    kind, text = (KafkaConfigError, "invalid credentials") if told else (KafkaUnavailableError, "_TRANSPORT")
    with pytest.raises(kind, match=f"looking: .*{text}"):
        refused.metadata(Refusing(refused, before, meanwhile), "looking", 1.0)


def test_a_question_that_outlives_its_client_ends_as_without_an_answer(monkeypatch: pytest.MonkeyPatch):
    script = ScriptedAdmin(None, None)
    admin = admin_over(script, monkeypatch)
    admin.close()
    for ask in (lambda: admin.partitions("t"), lambda: admin.start_offset(AT), admin.check_broker):
        with pytest.raises(KafkaUnavailableError, match="closed"):
            ask()
    assert script.calls == 0
