"""Why no connection comes about. A call of librdkafka only says that none did ("transport failure"); that the
broker refused user or certificate comes beside it, to `error_cb`, when the client is polled.
"""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError as ClientError

from stream_runtime.kafka.confluent.translate import UNKNOWN_USER, client_error

# A connection that ends or is silent in the middle of a login is reported as a refusal as well; it is none.
_CUT_OFF: Final = ("Local: Broker transport failure", "Local: Timed out")


class RefusedLogin:
    """Given to one client as its `error_cb`."""

    def __init__(self) -> None:
        self._newest: ClientError | None = None

    def __call__(self, error: ClientError) -> None:
        """The call that confluent-kafka makes for each error that no answer carries."""
        if error.code() in UNKNOWN_USER and not any(each in error.str() for each in _CUT_OFF):
            self._newest = error

    def forget(self, client: Any) -> None:
        """Before a call: what was refused earlier is not why this one fails."""
        client.poll(0)
        self._newest = None

    def cause(self, client: Any, exception: Any) -> ClientError:
        """What to tell of a call that failed: the refusal, if there was one since `forget`."""
        client.poll(0)
        found, self._newest = self._newest, None
        return found if found is not None else client_error(exception)
