"""Records a table that lived with all table services, with its topics: what is in such a recording is in
tests/golden/recorded_services/README.md.

    .venv/bin/python -m tests.golden.recipes.recorded_services tests/golden/recorded_services/COMMIT

OUTPUT becomes a folder with `recording.tar.xz` and `facts.json`, in half a minute: the product's coordinator,
writer tasks and merges over the in-memory broker and a real folder.
"""

from __future__ import annotations

import base64
import json
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.golden.recipes.product_commit import product_commit
from tests.simulation.rewriting_engine import RewritingEngine
from tests.simulation.watched_life import At, WatchedLife
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceKind,
    ServiceOutcome,
    ServiceVoided,
)
from tidemark.hudi_format.timeline import Action
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition

GROUPS: Final = 2
SEED: Final = 11
_SECONDS_MAX: Final = 120
_EVERYTHING: Final = 1 << 30


class _Script:
    """What befalls the services until every kind of entry is there."""

    def __init__(self, life: WatchedLife) -> None:
        self._life = life
        self.carried_out = self.lost = False

    def __call__(self, at: At, name: str) -> None:
        if at.kind is not ServiceKind.COMPACT_DATA:
            return
        if name == CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT and not self.carried_out:
            self.carried_out = True
            raise FailpointHitError(name)
        if name == CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE and not self.lost:
            self.lost = True
            raise ActionLostError("somebody came between")

    def is_over(self) -> bool:
        """Whether every kind was done, and an action each is void and another engine's."""
        life = self._life
        ends, planned = life.ended(), life.planned_services()
        done = {planned[n].kind for n, end in ends.items() if isinstance(end, ServiceCommitted)}
        outcomes = {end.outcome for end in ends.values() if isinstance(end, ServiceCommitted)}
        taken_back = any(isinstance(end, ServiceVoided) and end.undecides for end in ends.values())
        return done == set(ServiceKind) and outcomes == set(ServiceOutcome) and taken_back


def lived(folder: Path) -> WatchedLife:
    """The table, its coordinator dead: a data compaction is decided and half published, another action is
    open beside it, services are paused.
    """
    life = WatchedLife(folder, groups=GROUPS, seed=SEED)
    script = _Script(life)
    life.on_hit = script
    for second in range(_SECONDS_MAX):
        if second == 5:
            life.leave_dead_write()
        before = script.carried_out
        life.second()
        if script.carried_out and not before:
            held = life.state().services[ServiceKind.COMPACT_DATA]
            engine = RewritingEngine(life.plain, life.clock, Action.DELTA_COMMIT)
            engine.execute_compaction(held.planned.instant)
        if script.is_over():
            break
    assert script.is_over()
    _die_with_open_actions(life)
    return life


class _DeadError(Exception):
    """The coordinator dies, and has no successor."""


def _die_with_open_actions(life: WatchedLife) -> None:
    def die(at: At, name: str) -> None:
        context = life.context
        assert context is not None
        is_there = at.kind is ServiceKind.COMPACT_DATA and len(context.fold().state.services) > 1
        if is_there and name == CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE:
            assert life.coordinator is not None
            life.coordinator.pause_services(True, "upkeep of the disk")
            raise _DeadError(name)

    life.on_hit = die
    try:
        for _ in range(_SECONDS_MAX):
            life.second()
    except _DeadError:
        life.crash()
        return
    raise AssertionError("no other action was open beside a compaction")


def topic_lines(life: WatchedLife) -> Iterator[str]:
    """Every committed message, in the layout of `recorded_state.read_lines`."""
    names = life.topics
    for topic in (names.data, names.index, names.ledger, names.epochs):
        log = life.broker._logs[TopicPartition(topic, 0)]
        for message in log.read(log.start, Isolation.READ_COMMITTED, _EVERYTHING)[0]:
            yield json.dumps(
                {
                    "topic": topic,
                    "partition": 0,
                    "offset": message.offset,
                    "timestamp_ms": message.timestamp_ms,
                    "key": _text(message.key),
                    "headers": [[name, _text(value)] for name, value in message.headers],
                    "value": _text(message.value),
                }
            )


def facts_of(life: WatchedLife, commit: str) -> dict[str, Any]:
    """What the script alone says: all rows, once everything that is tagged is committed."""
    ends = {topic: life.broker._logs[TopicPartition(topic, 0)].end for topic in _topics(life)}
    return {"commit": commit, "clock_ms": life.clock.now_ms(), "rows": life.model, "ends": ends}


def _topics(life: WatchedLife) -> tuple[str, ...]:
    return (life.topics.data, life.topics.index, life.topics.ledger, life.topics.epochs)


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def main() -> None:
    """Records into the folder that the command line names."""
    output, commit = Path(sys.argv[1]), product_commit()
    with tempfile.TemporaryDirectory() as scratch:
        life = lived(Path(scratch) / "table")
        expected = Path(scratch) / "expected"
        expected.mkdir()
        (expected / "topics.jsonl").write_text("".join(f"{line}\n" for line in topic_lines(life)))
        reader = life.fold_reader()
        reader.catch_up()
        (expected / "fold.json").write_bytes(reader.fold.snapshot())
        output.mkdir(parents=True)
        with tarfile.open(output / "recording.tar.xz", "w:xz") as archive:
            archive.add(life.plain.base_uri, "table")
            archive.add(expected, "expected")
        facts = json.dumps(facts_of(life, commit), indent=0, sort_keys=True)
        (output / "facts.json").write_text(f"{facts}\n")


if __name__ == "__main__":
    main()
