"""Adds to an error of librdkafka why it has no connection.

A call's own error only says that there is none ("transport failure"). That the broker refused the user, the
certificate or the connection is reported separately: to the callback `error_cb`, when the client is polled.
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

# librdkafka reports a connection that ends or stalls during a login as a refused login, too. It is not one.
_CUT_OFF: Final = ("Local: Broker transport failure", "Local: Timed out")


class RefusedLogin:
    """The `error_cb` of one client: remembers the newest refusal."""

    def __init__(self) -> None:
        self._newest: ClientError | None = None
        self._unreached = ""

    def __call__(self, error: ClientError) -> None:
        """Takes an error that belongs to no request; confluent-kafka calls it."""
        if error.code() in UNKNOWN_USER and not any(text in error.str() for text in _CUT_OFF):
            self._newest = error
        elif error.code() in UNREACHED:
            self._unreached = error.str()

    def metadata(self, client: Any, doing: str, timeout_s: float, topic: str | None = None) -> Any:
        """The metadata of the cluster, or of one topic, by `client`.

        Raises KafkaError: the refusal if one came during the call, since earlier ones are not its cause.
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
