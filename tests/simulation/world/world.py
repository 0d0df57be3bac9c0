"""Runs a script: a whole Tidemark in one thread, judged after every step. See the package's README."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.world.actors import (
    StageActor,
)
from tests.simulation.world.checkers.services import ServiceActions
from tests.simulation.world.checkers.table import BrokenTableError
from tests.simulation.world.events import Events
from tests.simulation.world.script import Script
from tests.simulation.world.settings import inputs_of
from tidemark.hudi_format.model import instant_from_ms
from tidemark.stream_runtime.kafka.ports import TopicPartition

_EVENT_S: Final = 0.01
_ROUND_S: Final = 0.2
# Longer than the 30 s that a coordinator waits at most before it tries an epoch again (docs/simulation.md).
_ROUNDS_MAX: Final = 60 + int(30.0 / _ROUND_S)
_ALL_ROUNDS_MAX: Final = 5 * _ROUNDS_MAX
_DEATHS_MAX: Final = 2
"""Readers of a lane that may die where it stands; the next one is told of them (ARCHITECTURE.md)."""
_RESTARTS_MAX: Final = 3
_HARMLESS: Final = frozenset(
    {"feed", "round", "step", "wait", "hurry", "reader", "zombie", "thaw", "foreign", "skip"}
)
_LEASE_MS: Final = 3_000
_OWN_PENDING: Final = "rollback of its own pending write"
_ZOMBIE_STEPS: Final = 3
_INDEX_ROUNDS: Final = 25
_BUILDER_MS: Final = 3_600_000
"""After that nobody builds an index any more whose indexing instant is pending."""
_CLOCKS_MS: Final = 5_000


def _is_cause(event: Sequence[str]) -> bool:
    """Of a death that is not counted where the lane stands."""
    return event[0] not in _HARMLESS or (event[0] == "wait" and int(event[1]) >= _LEASE_MS)


@dataclass(frozen=True)
class Outcome:
    """``violations`` in the order in which they were found, none: all is well. ``at``: number of the event
    after which the first was found, -1 for the end. ``log``: what happened, an event a line. ``reached``: how
    often the states came about that a world is for.
    """

    violations: tuple[str, ...]
    at: int
    log: tuple[str, ...]
    epochs: int
    reached: Mapping[str, int] = field(default_factory=dict)


class World(Events):
    """One run of one script. Use `run_script` or `run_world`."""

    # ------------------------------------------------------------ events

    def run(self) -> Outcome:
        """Plays the script and lets the world come to rest; stops at the first violation."""
        at = -1
        try:
            for number, event in enumerate(self.script.events):
                self.log.append(f"{number:4} {' '.join(event)}")
                self.apply(event)
                self.clock.advance(_EVENT_S)
                self._happened()
                if self.judge.violations:
                    at = number
                    break
            else:
                self._settle()
        except BrokenTableError as error:
            # Another engine that acts on a broken table; in most cases what broke it is said already.
            if not self.judge.violations:
                self.judge.say("G1", str(error))
        finally:
            for actor in self._actors():
                actor.process.kill()
        return Outcome(tuple(self.judge.violations), at, tuple(self.log), self.judge.epoch, self._states())

    def _states(self) -> dict[str, int]:
        decisions, counted = self.judge.topics.counted()
        tagged = sum(entry["type"] == "transaction_tagged" for _, entry in self.judge.topics.ledger)
        states = {
            **self.reached,
            "lost to a commit": self.foreign.done["lost to a commit"],
            _OWN_PENDING: self.foreign.done[_OWN_PENDING],
            "index built anew": self.foreign.building.built_anew,
            "foreign service rolled back": self.foreign.services_rolled_back,
            "our commit after a foreign restore": self._restored_at is not None
            and self.judge.epoch > self._restored_at,
            "rewind": decisions.generation,
            "void": len(decisions.voided),
            "transaction that does not count": tagged - len(counted.tagged),
            "range of several batches": sum(
                part["batches"] > 1 for _, entry in counted.tagged for part in entry["produced"]
            ),
            "tombstone ended": self.judge._model.ended,
            "record of column stats": self.judge.indexes.stats.checked,
            "merged record of column stats": self.judge.indexes.stats.merged,
            "entry of a secondary index": self.judge.indexes.secondary.checked,
            "null in a secondary index": self.judge.indexes.secondary.nulls,
            "null in column stats": self.judge.indexes.stats.nulls,
            "reader ended by a deadly record": self.deadly.deaths.total(),
            **self._rich(len(decisions.commits)),
            **ServiceActions(self.judge.topics.decisions).ends,
        }
        return {state: count for state, count in states.items() if count}

    def _rich(self, commits: int) -> dict[str, int]:
        """Epochs that were committed in a world other than the usual one, by what is other."""
        setup = self.setup
        words = {
            "partitioning shard": setup.is_sharded,
            "partition none": setup.partition == "none",
            "partition two": setup.partition == "two",
            "composite key": setup.keys > 1,
            "several topics": setup.topics > 1,
            f"format {setup.format}": setup.format != "json",
            "grown schema": self._has_grown and not setup.nullable,
        }
        return {f"commit, {word}": commits for word, holds in words.items() if holds}

    # ------------------------------------------------------------ the end

    def _settle(self) -> None:
        """No new faults; what is frozen goes on, and everything comes to an end."""
        self.log.append("     the world comes to rest")
        self._do_broker("up")
        self.broker.faults.marker_delay_max_s = 0.0
        self._call_faults.clear()
        for seat in list(self.seats.values()):
            for actor in [*seat.zombies, seat.current]:
                if actor is not None:
                    actor.process.disarm()
                    self._thaw(actor)
        self.broker.deliver_late_ends()
        self._do_late_calls()
        self._is_settled = self.foreign.settle()
        for _ in range(_ZOMBIE_STEPS):
            for seat in list(self.seats.values()):
                self._do_zombie(seat.name)
            self._round()
        for seat in self.seats.values():
            for actor in seat.zombies:
                if isinstance(actor, StageActor):
                    self._leave(actor)
                actor.process.kill()
        self._rest()

    def _rest(self) -> None:
        waits: str | None = "the other engine is not done"
        if self.commands.is_left:
            # Who is silent for so long is taken for dead, and what it prepared is deleted.
            self._do_wait(str(_BUILDER_MS))
        left, restarts, number, epoch = _ROUNDS_MAX, _RESTARTS_MAX, 0, self.judge.epoch
        while waits is not None:
            if left == 0 or number == _ALL_ROUNDS_MAX:
                self.judge.say("G6", f"the world does not come to rest: {waits}")
                return
            left, number = left - 1, number + 1
            self._round()
            if self.judge.epoch > epoch:
                # A step of a service takes a round, too: many small epochs beside services take many.
                left, epoch = _ROUNDS_MAX, self.judge.epoch
            self._is_settled = self._is_settled or self.foreign.settle()
            if self.judge.violations:
                return
            if restarts and self._gave_up():
                # As it asks for; nothing else restarts a coordinator here.
                self._do_kill("coordinator")
                left, restarts = _ROUNDS_MAX, restarts - 1
            if number % 3 == 0 and self._lost and self._skip():
                left = _ROUNDS_MAX
            if number % _INDEX_ROUNDS == 0 and waits is not None and self.foreign.building.is_left():
                # As long as nothing is committed: then nobody asks.
                self.reached["waits until an index is taken out"] += 1
                self._do_wait(str(_BUILDER_MS))
                left = _ROUNDS_MAX
            if number % 3 == 0 and self._is_settled:
                waits = self.judge.waits_for(self._input_ends()) or self._services_go_on()
        for _ in range(4):
            self._round()
        if self.judge.violations:
            return
        self._judge_deaths()
        self._judge_skips()
        self._partitions.at_rest()
        self.judge.at_rest(self._sent, len(self._sent) + self._broken, self._broken)
        self.judge.check_traces(self.storage.paths(), self._deletions_lost)

    def _services_go_on(self) -> str | None:
        """Pauses services, as nothing else ends them, and says what of them is open. What waits for clocks of
        others stays open: nothing of it is on the table.
        """
        actor = self._coordinator()
        if self.setup.services and actor is not None and actor.loop is not None:
            actor.loop._coordinator.pause_services(True, "the world comes to rest")
        actions = ServiceActions(self.judge.topics.decisions)
        soon = instant_from_ms(self.clock.now_ms() + _CLOCKS_MS)
        left = [n for n, plan in actions.open.items() if n in actions.decided or plan["instant"] < soon]
        return f"service actions {sorted(left)} are open" if left else None

    def _gave_up(self) -> bool:
        """Whether the coordinator says that an operator has to restart it: an epoch had too many attempts, or
        something has to be done before.
        """
        actor = self._coordinator()
        halted = actor.loop._coordinator.seen.halted if actor is not None else None
        self.operator.reads(halted or "")
        return bool(halted)

    def _judge_deaths(self) -> None:
        """G7: two readers die where a lane stands, the next one is told. Who was ended otherwise, or did not
        answer, may leave the lane to one that knows nothing yet. So may a coordinator that did nothing for as
        long as a lease: it has not read how far the lane came, and counts the death at an earlier position.
        """
        causes = sum(map(_is_cause, self.script.events)) + self._ended
        for (place, position), deaths in self.deadly.deaths.items():
            if deaths > _DEATHS_MAX + causes:
                where = f"{place.topic}[{place.partition}] at {position}"
                self.judge.say("G7", f"{deaths} readers of {where} died, the script has {causes} causes")

    def _judge_skips(self) -> None:
        """G6: what was passed over is what nobody can read, no more and no less. Lanes of the assign stage do
        not say it; they are held to the dead letters and to what arrives.
        """
        _, counted = self.judge.topics.counted()
        parts = [each for _, entry in counted.shuffled for each in entry.get("skipped", ())]
        skipped = sorted((each["lane"], each["first"], each["last"]) for each in parts)
        if not self.setup.is_sharded and skipped != sorted(self._lost):
            self.judge.say("G6", f"skipped {skipped}, unreadable are {sorted(self._lost)}")

    def _round(self) -> None:
        self._do_round()
        self.clock.advance(_ROUND_S)
        self._happened()

    def _input_ends(self) -> dict[str, int]:
        places = [TopicPartition(t, n) for t in inputs_of(self.setup) for n in range(self.setup.inputs)]
        return {f"{place.topic}:{place.partition}": self.broker.log(place).end for place in places}


def run_script(script: Script) -> Outcome:
    """Runs a script from an empty table to rest, or to the first violation. Equal scripts, equal outcomes."""
    return run_world(World(script))


def run_world(world: World) -> Outcome:
    """As `run_script`, from where the world's ground is."""
    logging.getLogger("tidemark").setLevel(logging.CRITICAL + 1)
    with world.edges.in_place(world.setup):
        return world.run()
