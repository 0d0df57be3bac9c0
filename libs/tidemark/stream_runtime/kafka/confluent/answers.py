"""What a broker answered to a request of the admin client, which hands out futures."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaException

from tidemark.stream_runtime.kafka.confluent.translate import client_error, translate
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError

ANSWER_S: Final = 15.0


def is_done(future: Any, doing: str, timeout_s: float, already: int) -> bool:
    """Waits for a change. False if the broker says by the code `already` that there is nothing to change.
    Raises KafkaError; its text begins with `doing`.
    """
    try:
        future.result(timeout_s)
    except KafkaException as error:
        if client_error(error).code() == already:
            return False
        raise translate(client_error(error), doing) from None
    except TimeoutError:
        raise KafkaUnavailableError(f"{doing}: no answer in {timeout_s} s") from None
    return True


def result(future: Any, doing: str, timeout_s: float = ANSWER_S) -> Any:
    """Waits for the answer. Raises KafkaError; its text begins with `doing`."""
    try:
        return future.result(timeout_s)
    except KafkaException as error:
        raise translate(client_error(error), doing) from None
    except TimeoutError:
        raise KafkaUnavailableError(f"{doing}: no answer in {timeout_s} s") from None


def settings_of(resource: Any, future: Any, timeout_s: float = ANSWER_S) -> dict[str, str]:
    """The settings of a topic or broker: those that have a value. Raises KafkaError."""
    entries = result(future, f"settings of {resource.name}", timeout_s)
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
