"""Why no connection comes about. A call of librdkafka only says that none did ("transport failure"); that the
broker refused user or certificate comes beside it, to `error_cb`, when the client is polled.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError as ClientError

from stream_runtime.kafka.confluent.translate import UNKNOWN_USER, client_error


class RefusedLogin:
    """Given to one client as its `error_cb`."""

    def __init__(self) -> None:
        self._newest: ClientError | None = None

    def __call__(self, error: ClientError) -> None:
        """The call that confluent-kafka makes for each error that no answer carries."""
        if error.code() in UNKNOWN_USER:
            self._newest = error

    def cause(self, client: Any, exception: Any) -> ClientError:
        """What to tell of a call that failed: the refusal, if there was one since the last that was told."""
        client.poll(0)
        found, self._newest = self._newest, None
        return found if found is not None else client_error(exception)
