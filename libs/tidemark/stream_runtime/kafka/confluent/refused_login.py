"""Why no connection comes about. A call of librdkafka only says that none did ("transport failure"); that the
broker refused user, certificate or connection comes beside it, to `error_cb`, when the client is polled.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException

from tidemark.stream_runtime.kafka.confluent.translate import (
    UNKNOWN_USER,
    UNREACHED,
    client_error,
    translate,
)

# A connection that ends or is silent in the middle of a login is reported as a refusal as well; it is none.
_CUT_OFF: Final = ("Local: Broker transport failure", "Local: Timed out")


class RefusedLogin:
    """Given to one client as its `error_cb`."""

    def __init__(self) -> None:
        self._newest: ClientError | None = None
        self._unreached = ""

    def __call__(self, error: ClientError) -> None:
        """The call that confluent-kafka makes for each error that no answer carries."""
        if error.code() in UNKNOWN_USER and not any(each in error.str() for each in _CUT_OFF):
            self._newest = error
        elif error.code() in UNREACHED:
            self._unreached = error.str()

    def metadata(self, client: Any, doing: str, timeout_s: float, topic: str | None = None) -> Any:
        """What its client knows of the cluster, or of one topic. Raises KafkaError: the refusal, if one came
        meanwhile. What was refused earlier is not why this call fails.
        """
        client.poll(0)
        self._newest, self._unreached = None, ""
        asked = {} if topic is None else {"topic": topic}
        try:
            return client.list_topics(timeout=timeout_s, **asked)
        except KafkaException as error:
            client.poll(0)
            why = f" ({self._unreached})" if self._unreached and self._newest is None else ""
            raise translate(self._newest or client_error(error), f"{doing}{why}") from None
