"""Gives Tidemark's topics the settings that the configuration asks for now, where they were made with another
one.

1. `max.message.bytes` of all is at least what `limits.message_bytes` needs, and a segment has room for a
   message. Else a message of more bytes ends its assigner, and each one after it.
2. `retention.ms` of tombstones is at least `table.index.tombstone_ttl` and six hours. Where it is shorter,
   deletes are forgotten when a lane moves. A longer one stays: tombstones of a longer TTL may still hold.
3. Dead letters are kept as `limits.dead_letter_retention` and `limits.dead_letter_bytes` say.

Where this user may not change settings, the coordinator does not start by 1 and 2. Of 3 its log has a line.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.config import TableConfigFile
from tidemark.errors import ErrorKind
from tidemark.ledger_client.topics import TopicNames, dead_letter_settings
from tidemark.stream_runtime.kafka.ports import Admin, KafkaConfigError, KafkaError, TopicSpec

_MESSAGE, _SEGMENT, _RETENTION = "max.message.bytes", "segment.bytes", "retention.ms"
_WHY: Final = {
    _MESSAGE: "limits.message_bytes is larger, and a message that the topic refuses ends its assigner",
    _RETENTION: "table.index.tombstone_ttl is longer, and older events would bring deleted rows back",
}
_log = logging.getLogger("tidemark.coordinator")


class TopicSettingsError(CoordinatorError):
    """A topic has settings with which rows or processes would be lost, and this user may not change them."""

    kind = ErrorKind.INVALID


def keep_settings(config: TableConfigFile, specs: Sequence[TopicSpec], admin: Admin) -> None:
    """Changes what differs. ``specs``: of the topics that are there, as they would be made now.

    Raises TopicSettingsError, KafkaUnavailableError.
    """
    found = admin.topic_settings([spec.name for spec in specs])
    if unseen := [spec.name for spec in specs if spec.name not in found]:
        _log.warning(
            "this user may not see the settings of %s: after a change of limits.message_bytes, "
            "limits.dead_letter_retention or table.index.tombstone_ttl set them yourself "
            "(docs/security.md has the ACLs)",
            ", ".join(unseen),
        )
    for spec in specs:
        if spec.name in found:
            _keep(config, spec, found[spec.name], admin)


def _keep(config: TableConfigFile, spec: TopicSpec, there: Mapping[str, str], admin: Admin) -> None:
    names = TopicNames(config.table.name)
    too_small = _too_small(spec, there, names)
    exact = dead_letter_settings(config) if spec.name == names.dead_letter else {}
    wanted = {name: value for name, value in exact.items() if there.get(name) != value} | too_small
    if not wanted:
        return
    text = ",".join(f"{name}={value}" for name, value in wanted.items())
    try:
        admin.configure_topic(spec.name, wanted)
    except KafkaError as error:
        way = f"kafka-configs --alter --topic {spec.name} --add-config {text}"
        if not too_small:
            # No reason to stop: letters are only kept for longer or shorter.
            _log.warning("set what the configuration asks for yourself: %s (%s)", way, error)
            return
        if not isinstance(error, KafkaConfigError):
            raise
        why = _WHY[next(iter(too_small))]
        raise TopicSettingsError(f"topic {spec.name}: {why}. Set it: {way} ({error})") from error
    _log.info("topic %s has the settings that are configured now: %s", spec.name, text)


def _too_small(spec: TopicSpec, there: Mapping[str, str], names: TopicNames) -> dict[str, str]:
    """Settings that are less than what the topic needs."""
    wanted, message = {}, int(spec.config[_MESSAGE])
    if int(there.get(_MESSAGE, message)) < message:
        wanted[_MESSAGE] = str(message)
        if int(there.get(_SEGMENT, message)) < message:
            wanted[_SEGMENT] = str(max(message, int(spec.config[_SEGMENT])))
    kept_ms = int(spec.config[_RETENTION])
    if spec.name == names.tombstones and 0 <= int(there.get(_RETENTION, kept_ms)) < kept_ms:
        wanted[_RETENTION] = str(kept_ms)
    return wanted
