"""Checks of Kafka: it can be reached, its settings are safe, its topics are right, and this user has
the ACLs.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Final

from tidemark.config import TableConfigFile
from tidemark.doctor.checks import Finding, fails, ok, warning
from tidemark.doctor.trial import TRIAL_INFIX
from tidemark.ledger_client.topics import topic_specs
from tidemark.stream_runtime.kafka.confluent.inspection import ClusterInspection, TopicFacts
from tidemark.stream_runtime.kafka.ports import TopicSpec

_VERIFICATION: Final = "transaction.partition.verification.enable"
_TIMEOUT_MAX: Final = "transaction.max.timeout.ms"
_RELEASE: Final = "inter.broker.protocol.version"
_INPUT_KEPT_MS_MIN: Final = 24 * 3_600_000
_REPLICAS_SAFE: Final = 3
_IN_SYNC_SAFE: Final = 2
_INPUT_NEEDS: Final = frozenset({"READ", "DESCRIBE"})
_OWN_NEEDS: Final = frozenset({"READ", "WRITE", "DELETE", "DESCRIBE"})
# Without these rights a topic works, but its settings stay those of the first start, whatever
# `limits.message_bytes`, `limits.dead_letter_retention` or `table.index.tombstone_ttl` say later.
_SETTINGS_NEED: Final = frozenset({"DESCRIBE_CONFIGS", "ALTER_CONFIGS"})
_SETTINGS_SEEN: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "message.timestamp.type")


def reachable(inspection: ClusterInspection) -> Iterator[Finding]:
    """Names the cluster and its brokers. Raises KafkaUnavailableError when none answers."""
    cluster = inspection.cluster()
    brokers = ", ".join(cluster.brokers[number] for number in sorted(cluster.brokers))
    yield ok(f"cluster {cluster.cluster_id or '(no id)'}, brokers: {brokers}")


def able(inspection: ClusterInspection, config: TableConfigFile) -> Iterator[Finding]:
    """Checks the settings of every broker that exactly-once rests on."""
    for number in inspection.cluster().brokers:
        settings = inspection.broker_settings(number)
        if settings is None:
            yield warning(
                f"broker {number}: this user may not see its settings",
                f"Allow DESCRIBE_CONFIGS on the cluster, or make sure that {_VERIFICATION} is true",
            )
            continue
        yield from _broker(number, settings, config.limits.transaction_timeout_ms)


def _broker(number: int, settings: Mapping[str, str], timeout_ms: int) -> Iterator[Finding]:
    release = settings.get(_RELEASE)
    verified = settings.get(_VERIFICATION)
    if verified is None:
        yield fails(
            f"broker {number} ({release or 'release unknown'}) does not verify transactions",
            "Use Apache Kafka 3.6 or later: with older ones the ledger could name a torn transaction",
        )
    elif verified != "true":
        yield fails(f"broker {number}: {_VERIFICATION} is {verified}", "Set it to true, which is its default")
    allowed_ms = int(settings.get(_TIMEOUT_MAX, "900000"))
    if allowed_ms < timeout_ms:
        yield fails(
            f"broker {number}: {_TIMEOUT_MAX} is {allowed_ms}, limits.transaction_timeout {timeout_ms} ms",
            f"Raise {_TIMEOUT_MAX}, or lower limits.transaction_timeout",
        )
    if settings.get("unclean.leader.election.enable") == "true":
        yield warning(
            f"broker {number}: unclean.leader.election.enable is true: acknowledged records may be lost",
            "Set it to false, at least for the table's topics",
        )
    if verified == "true" and allowed_ms >= timeout_ms:
        version = f"protocol {release}" if release else "4.0 or later"
        yield ok(f"broker {number} ({version}): transactions are verified, time-outs fit")


def input_topics(inspection: ClusterInspection, config: TableConfigFile) -> Iterator[Finding]:
    """Checks that the input topics exist, can be read, keep records long enough, and fit the lanes."""
    brokers = len(inspection.cluster().brokers)
    for name in config.input.topics:
        facts = inspection.topic(name)
        if facts is None:
            yield warning(
                f"input topic {name} does not exist",
                f"`tidemark run` creates it with {config.input.partitions} partitions; or create it yourself",
            )
            continue
        if facts.hidden:
            yield fails(f"input topic {name}: this user may not see it", _grant(name, _INPUT_NEEDS))
            continue
        allowed = yield from _allowed(name, facts, _INPUT_NEEDS)
        yield from _input(name, facts, config)
        if facts.replicas == 1 and brokers > 1:
            yield warning(f"{name} has one replica", "Use three: if its broker is lost its records are lost")
        yield from _in_sync(name, facts)
        if allowed:
            yield ok(f"input topic {name}: {facts.partitions} partitions")


def _input(name: str, facts: TopicFacts, config: TableConfigFile) -> Iterator[Finding]:
    by_shard = config.input.is_sharded
    if by_shard and facts.partitions != config.table.index.lanes:
        yield fails(
            f"{name} has {facts.partitions} partitions, input.partitioning: shard needs one per lane "
            f"({config.table.index.lanes})",
            "For a new table set table.index.lanes to the number of partitions, or input.partitioning to "
            "any; for a table that exists see the check `start`",
        )
    settings = facts.settings or {}
    kept_ms = int(settings.get("retention.ms", "-1"))
    if 0 <= kept_ms < _INPUT_KEPT_MS_MIN and "delete" in settings.get("cleanup.policy", "delete"):
        yield warning(
            f"{name} keeps records for {kept_ms / 3_600_000:.1f} h",
            "Keep them longer than any outage lasts: a partition stops if records are deleted before they "
            "were read",
        )
    bytes_max = int(settings.get("max.message.bytes", "0"))
    if bytes_max > config.limits.record_bytes:
        yield warning(
            f"{name} takes records of {bytes_max} bytes, limits.record_bytes is {config.limits.record_bytes}",
            "Records larger than the limit become dead letters: raise it if you expect such records",
        )


def own_topics(inspection: ClusterInspection, config: TableConfigFile) -> Iterator[Finding]:
    """Compares Tidemark's own topics with how they would be made now. Those that do not exist are only
    counted.
    """
    missing, hidden, sound = [], [], 0
    kept: dict[str, frozenset[str]] = {}
    for spec in topic_specs(config):
        facts = inspection.topic(spec.name)
        if facts is None:
            missing.append(spec.name)
            continue
        if facts.hidden:
            hidden.append(spec.name)
            continue
        allowed = yield from _allowed(spec.name, facts, _OWN_NEEDS)
        if lacking := _lacking(facts, _SETTINGS_NEED):
            kept[spec.name] = lacking
        wrong = list(_differences(spec, facts))
        yield from wrong
        yield from _in_sync(spec.name, facts)
        yield from _segments(spec, facts)
        sound += allowed and not wrong
    if hidden:
        yield fails(
            f"this user may not see {len(hidden)} of Tidemark's topics ({hidden[0]}, …)",
            f"Give it the ACLs of docs/security.md: kafka-acls --add --topic {config.table.name}. "
            "--resource-pattern-type prefixed …",
        )
    if kept:
        yield _settings_kept(config.table.name, kept)
    if missing:
        yield ok(f"{len(missing)} topics will be made at the first start ({missing[0]}, …)")
    if sound:
        yield ok(f"{sound} of Tidemark's topics are as they should be")
    left = [topic for topic in inspection.topics() if topic.startswith(f"{config.table.name}{TRIAL_INFIX}")]
    if left:
        yield warning(
            f"topics of a `tidemark doctor` that was killed, or still runs: {', '.join(left)}", "Delete them"
        )


def _set_at_start(topic: str) -> tuple[str, ...]:
    """The settings that a start of the coordinator gives the topic from the configuration."""
    if topic.endswith(".dead-letter"):
        return "max.message.bytes", "retention.ms", "retention.bytes"
    return ("max.message.bytes", "retention.ms") if topic.endswith(".tombstones") else ("max.message.bytes",)


def _lacking(facts: TopicFacts, needs: frozenset[str]) -> frozenset[str]:
    """Rights that this user does not have. A broker that does not tell the rights counts as allowing
    everything.
    """
    return frozenset() if facts.allowed is None or "ALL" in facts.allowed else needs - facts.allowed


def _settings_kept(table: str, kept: Mapping[str, frozenset[str]]) -> Finding:
    lacking = sorted({right for rights in kept.values() for right in rights})
    return warning(
        f"this user lacks {', '.join(lacking)} on {len(kept)} of the topics ({next(iter(kept))}, …): a "
        "start cannot give them what another limits.message_bytes, limits.dead_letter_retention or "
        "table.index.tombstone_ttl asks for",
        _grant(f"{table}. --resource-pattern-type prefixed", lacking),
    )


def _in_sync(name: str, facts: TopicFacts) -> Iterator[Finding]:
    """Tidemark makes its topics with `min.insync.replicas` 2 where they have three replicas."""
    least = int((facts.settings or {}).get("min.insync.replicas", "2"))
    if facts.replicas >= _REPLICAS_SAFE and least < _IN_SYNC_SAFE:
        yield warning(
            f"{name} has {facts.replicas} replicas and min.insync.replicas {least}: records are acknowledged "
            "that only one broker has, and lost with its disk",
            f"kafka-configs --alter --topic {name} --add-config min.insync.replicas={_IN_SYNC_SAFE}",
        )


def _segments(spec: TopicSpec, facts: TopicFacts) -> Iterator[Finding]:
    """Warns of large segments. Topics that a former version made have the broker's default, usually 1 GiB."""
    size, wanted = int((facts.settings or {}).get("segment.bytes", "0")), int(spec.config["segment.bytes"])
    if size > wanted:
        yield warning(
            f"{spec.name} has segments of {size} bytes: Kafka deletes whole segments, so up to that much of "
            "trimmed records stays on each partition",
            f"kafka-configs --alter --topic {spec.name} --add-config segment.bytes={wanted}",
        )


def _differences(spec: TopicSpec, facts: TopicFacts) -> Iterator[Finding]:
    if facts.partitions != spec.partitions:
        yield fails(
            f"{spec.name} has {facts.partitions} partitions, the configuration asks for {spec.partitions}",
            "Set table.index.lanes back: partition counts cannot change, except by a new ledger "
            "(`tidemark table adopt --new-ledger`)",
        )
    settings = facts.settings
    if settings is None:
        return
    for key in _SETTINGS_SEEN:
        if key in settings and settings[key] != spec.config[key] and not _is_longer(spec, key, settings[key]):
            text = f"{spec.name}: {key} is {settings[key]}, it was made with {spec.config[key]}"
            yield _differs(spec, facts, key, text)
    wanted = int(spec.config["max.message.bytes"])
    if (found := int(settings.get("max.message.bytes", wanted))) < wanted:
        text = f"{spec.name}: max.message.bytes is {found}, limits.message_bytes needs {wanted}"
        yield _differs(spec, facts, "max.message.bytes", text)


def _is_longer(spec: TopicSpec, key: str, value: str) -> bool:
    """Whether the topic keeps tombstones for longer than one that is made now: a start leaves that."""
    if key != "retention.ms" or not spec.name.endswith(".tombstones"):
        return False
    return value == "-1" or int(value) > int(spec.config[key])


def _differs(spec: TopicSpec, facts: TopicFacts, key: str, text: str) -> Finding:
    command = f"kafka-configs --alter --topic {spec.name} --add-config {key}={spec.config[key]}"
    if key in _set_at_start(spec.name) and not _lacking(facts, _SETTINGS_NEED):
        return warning(text, f"The next start of the coordinator sets it. Before that: {command}")
    return fails(text, command)


def _allowed(name: str, facts: TopicFacts, needs: frozenset[str]) -> Generator[Finding, None, bool]:
    """Yields a finding for missing rights; returns whether none is missing."""
    lacking = _lacking(facts, needs)
    if lacking:
        yield fails(
            f"{name}: this user may not {', '.join(sorted(lacking))}",
            _grant(name, lacking),
        )
    return not lacking


def _grant(topic: str, operations: Iterable[str]) -> str:
    wanted = " ".join(f"--operation {operation}" for operation in sorted(operations))
    return f"Grant it: kafka-acls --add --topic {topic} {wanted} … (docs/security.md has all of them)"
