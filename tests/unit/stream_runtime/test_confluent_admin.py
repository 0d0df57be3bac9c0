"""What the admin client does with answers that a broker gives for a moment only."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from stream_runtime.clock import ManualClock
from stream_runtime.kafka.confluent.admin import ConfluentAdmin
from stream_runtime.kafka.confluent.settings import ClientSettings
from stream_runtime.kafka.errors import LeaderChangingError, MissingTopicError
from stream_runtime.kafka.ports import Isolation, TopicPartition

AT = TopicPartition("t", 0)
SETTINGS = ClientSettings({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, 1 << 20, 10_000)


class Offset:
    offset = 7


class ScriptedAdmin:
    """Answers `list_offsets` with errors first, then with offset 7; `errors` None: with nothing else."""

    def __init__(self, code: int, errors: int | None) -> None:
        self.calls = 0
        self._code = code
        self._errors = errors

    def list_offsets(self, requests: Any, **_: Any) -> dict[Any, Future[Any]]:
        self.calls += 1
        future: Future[Any] = Future()
        if self._errors is None or self.calls <= self._errors:
            future.set_exception(KafkaException(ClientError(self._code)))
        else:
            future.set_result(Offset())
        return dict.fromkeys(requests, future)


def admin_over(script: ScriptedAdmin) -> ConfluentAdmin:
    admin = ConfluentAdmin(SETTINGS, ManualClock())
    admin._admin = script
    return admin


@pytest.mark.parametrize(
    "code",
    [
        ClientError.UNKNOWN_LEADER_EPOCH,
        ClientError.NOT_LEADER_FOR_PARTITION,
        ClientError.LEADER_NOT_AVAILABLE,
    ],
)
def test_offsets_are_asked_again_while_the_leader_changes(code: int):
    script = ScriptedAdmin(code, 3)
    assert admin_over(script).end_offset(AT, Isolation.READ_COMMITTED) == 7
    assert script.calls == 4


def test_a_leader_that_never_comes_is_an_error_within_a_bound():
    script = ScriptedAdmin(ClientError.UNKNOWN_LEADER_EPOCH, None)
    with pytest.raises(LeaderChangingError, match=r"offsets of t\[0\]"):
        admin_over(script).end_offset(AT, Isolation.READ_COMMITTED)
    assert 10 < script.calls < 1_000


def test_other_errors_are_raised_at_once():
    script = ScriptedAdmin(ClientError.UNKNOWN_TOPIC_OR_PART, 1)
    with pytest.raises(MissingTopicError):
        admin_over(script).start_offset(AT)
    assert script.calls == 1
