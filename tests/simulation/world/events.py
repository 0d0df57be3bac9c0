"""What each verb of a script does (`script.VERBS`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from testing.kafka import EndFault
from tests.hudi_rules.timeline import parse_name
from tests.simulation.world.actors import (
    CoordinatorActor,
    StageActor,
    WriterActor,
)
from tests.simulation.world.checkers.timelines import DATA_TIMELINE
from tests.simulation.world.feeding import Feeding
from tests.simulation.world.process import Cut, Status
from tests.simulation.world.script import Event
from tests.simulation.world.settings import NOTE, TABLE, config_of
from tests.simulation.world.town import Seat
from tidemark.commit_coordinator.calls.inbox import FlushNow
from tidemark.commit_coordinator.commit.attempt_effects import tick_lock
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.publication.table_lock import CLOCK_SKEW_MS, LOCK_PATH
from tidemark.stream_runtime.rpc.errors import RpcError

_OPERATOR_STEP_S: Final = 0.2
_TRY_S: Final = 0.1
_BEGUN_BY: Final = {
    "finish": "begin",
    "run-compaction": "plan-compaction",
    "run-clustering": "plan-clustering",
    "run-clean": "plan-clean",
    "compact-index": "plan-compact-index",
}
"""What is carried out later -> what it begins with."""
_TRIES: Final = CLOCK_SKEW_MS // 100 + 2


class Events(Feeding):
    """A method `_do_<verb>` per verb, with the event's words."""

    def apply(self, event: Event) -> None:
        """One event; words that fit nothing that is there do nothing."""
        verb, *words = event
        handler: Callable[..., None] = getattr(self, f"_do_{verb.replace('-', '_')}")
        handler(*words)

    def _do_skip(self) -> None:
        self._skip()

    def _skip(self) -> int:
        """An operator looks at the status and has all stopped lanes go on; how many did."""
        actor = self._coordinator()
        if actor is None or actor.server is None:
            return 0
        skips = self.edges.skips_of(actor.server)
        done = 0
        for lane in skips.standing():
            self.reached["lane stands still"] += 1
            if skips.skip(lane, partial(self._goes_on, _OPERATOR_STEP_S)):
                self.reached["input skipped"] += 1
                done += 1
        return done

    def _do_grow(self) -> None:
        self._has_grown = True
        self.around.config = self.config = config_of(self.setup, grown=True)
        for actor in self._actors():
            actor.process.kill()

    def _seat(self, name: str) -> Seat:
        return self.seats.setdefault(name, Seat(name))

    def _do_round(self) -> None:
        for seat in list(self.seats.values()):
            self.step(seat)

    def _do_step(self, name: str) -> None:
        self.step(self._seat(name))

    def _do_wait(self, milliseconds: str) -> None:
        self.clock.advance(int(milliseconds) / 1000)

    def _do_jump(self, milliseconds: str) -> None:
        self.clock.jump(int(milliseconds))

    def _arm(self, cut: Cut, name: str, nth: str, *words: str) -> None:
        current = self._seat(name).current
        if current is not None:
            current.process.arm(cut, int(nth), " ".join(words))
            if cut in (Cut.FAIL_BEFORE, Cut.FAIL_AFTER):
                self._work.aimed_at_seat(name)

    def _do_crash(self, *words: str) -> None:
        self._arm(Cut.CRASH, *words)

    def _do_freeze(self, *words: str) -> None:
        self._arm(Cut.FREEZE, *words)

    def _do_fail_before(self, *words: str) -> None:
        self._arm(Cut.FAIL_BEFORE, *words)

    def _do_fail_after(self, *words: str) -> None:
        self._arm(Cut.FAIL_AFTER, *words)

    def _do_kill(self, name: str) -> None:
        current = self._seat(name).current
        if current is not None:
            current.process.kill()

    def _do_thaw(self, name: str) -> None:
        seat = self._seat(name)
        for actor in [*seat.zombies, seat.current]:
            if actor is not None and actor.process.status is Status.FROZEN:
                self._thaw(actor)
                return

    def _do_replace(self, name: str) -> None:
        seat = self._seat(name)
        if seat.current is not None and seat.current.process.alive:
            seat.zombies.append(seat.current)
            seat.current = self._make(seat)

    def _do_zombie(self, name: str) -> None:
        for actor in self._seat(name).zombies:
            if actor.process.status is Status.RUNNING:
                self._step(actor)

    def _do_leave(self, name: str) -> None:
        actor = self._seat(name).current
        if isinstance(actor, StageActor):
            self._leave(actor)

    def _leave(self, actor: StageActor) -> None:
        self._carried(actor, lambda: actor.process.step(actor.leave))
        actor.process.kill()

    def _do_lose_disk(self, name: str) -> None:
        seat = self._seat(name)
        for actor in [*seat.zombies, seat.current]:
            if actor is not None:
                actor.process.kill()
        self._disks.pop(name, None)

    def _do_machine_crash(self, batches: str) -> None:
        for actor in self._actors():
            actor.process.kill()
        came_back = self.storage.crash()
        self.foreign.machine_crashed(came_back)
        for path in came_back:
            # What another engine had deleted of the timeline.
            self._work.foreign_stored(path)
        self._deletions_lost = True
        for disk in self._disks.values():
            for folder in disk.folders:
                folder.lose(int(batches))

    def _do_end_fault(self, identity: str, fault: str) -> None:
        self._work.aimed_at_writers_of(identity)
        self.broker.faults.on_next_end(f"{TABLE}-{identity}", EndFault[fault])

    def _do_late_ends(self) -> None:
        if self.broker._running:
            self.broker.deliver_late_ends()

    def _do_lose_message(self, role: str) -> None:
        self._work.aimed_at_writers_of(role)
        self.broker.faults.lose_messages(f"{TABLE}.{role}")

    def _do_lose_ack(self, role: str) -> None:
        self._work.aimed_at_writers_of(role)
        self.broker.faults.lose_acknowledgements(f"{TABLE}.{role}")

    def _do_markers(self, milliseconds: str) -> None:
        self.broker.faults.marker_delay_max_s = int(milliseconds) / 1000

    def _do_broker(self, state: str) -> None:
        self._work.broker(state == "down")
        if state == "down":
            self.broker.stop()
        else:
            self.broker.start()

    def _do_starts_back(self, deletions: str, *roles: str) -> None:
        for place, log in self.broker._logs.items():
            table, _, role = place.topic.partition(".")
            if table == TABLE and (not roles or role in roles):
                before = log.start
                self.broker.put_start_back(place, int(deletions))
                self.reached[f"{role} begins earlier again"] += log.start < before

    def _do_call_fault(self, seat: str, method: str, fault: str) -> None:
        self._call_faults[seat, method] = fault

    def _do_late_calls(self) -> None:
        late, self._late_calls = self._late_calls, []
        for path, request in late:
            with contextlib.suppress(RpcError):
                self._answer(path, request)

    def _do_speculate(self) -> None:
        actor = self.seats["writer"].current
        if isinstance(actor, WriterActor):
            actor.engine.speculate = True

    def _do_fail_job(self) -> None:
        actor = self.seats["writer"].current
        if isinstance(actor, WriterActor):
            actor.engine.fails = True

    def _coordinator(self) -> CoordinatorActor | None:
        actor = self.seats["coordinator"].current
        if isinstance(actor, CoordinatorActor) and actor.loop is not None:
            return actor if actor.process.status is Status.RUNNING else None
        return None

    def _do_rewind_wish(self) -> None:
        actor = self._coordinator()
        if actor is not None:
            context = actor.service.context
            assert context is not None
            # As a torn range would have an assigner say.
            generation = context.fold().state.generation
            self._work.wished()
            actor.loop._coordinator.want_rewind("an assigner asks for it", generation)

    def _do_lose_lock(self) -> None:
        self.storage.memory.delete_tree(LOCK_PATH)
        self.storage.memory.delete(LOCK_PATH)
        self._partitions.lock_was_taken()
        self._work.lock_was_taken()

    def _do_index(self, what: str, nth: str = "", *words: str) -> None:
        is_there = self.storage.exists(".hoodie/hoodie.properties")
        if not is_there or self.setup.store == "objects" or self.foreign.building.is_on:
            return
        process = self.commands.new()
        if nth:
            process.arm(Cut.CRASH, int(nth), " ".join(words))
        column = NOTE if self.setup.nullable else "ts"
        said = self.commands.run(process, what, self.config, column)
        self.log.append(f"    index {what} {said}")
        self.reached[f"index {what} {' '.join(said.split()[:2]).rstrip(':')}"] += 1

    def _do_hurry(self) -> None:
        actor = self._coordinator()
        if actor is not None:
            actor.service.parts.inbox.put(FlushNow())

    def _do_foreign(self, kind: str, *words: str) -> None:
        self.judge.topics.follow()
        decisions, epoch = self.judge.topics.counted()[0], self.judge.epoch
        plan = decisions.planned
        if any(NOTE in planned["schema"] for planned, _ in decisions.commits):
            self.foreign.sees_note()
        if kind != "clock":
            self._wait_for_the_lock()
        before = self._completions()
        if not self.foreign.act(kind, *words):
            self.log.append(f"    it does not: {self.foreign.said}")
            return
        self.reached[f"foreign {kind}"] += 1
        if plan is not None:
            self.reached[f"foreign {kind} in an attempt"] += 1
        if kind in _BEGUN_BY.values():
            self._begun[kind] = epoch
        if kind.startswith("fail-"):
            # It plans what is not planned.
            self._begun.setdefault(kind.replace("fail-", "plan-"), epoch)
        if kind == "restore":
            self._restored_at = epoch
        ours = {planned["instant"] for planned, _ in decisions.commits} - {None}
        if kind == "archive" and ours and not ours & self._completions().keys():
            self.reached["all our commits are archived"] += 1
        if kind in _BEGUN_BY and self._begun.pop(_BEGUN_BY[kind], epoch) < epoch:
            self.reached[f"foreign {kind} over our commit"] += 1
        self._note_unseen(before)

    def _completions(self) -> dict[str, str]:
        """Requested -> completion time of what is completed on the data timeline."""
        found = map(parse_name, self.storage.file_names(DATA_TIMELINE))
        return {each[0]: each[1] for each in found if each is not None and each[1] is not None}

    def _note_unseen(self, before: Mapping[str, str]) -> None:
        """A commit that an assigner did not see that claims lanes now, or one below what all have seen."""
        fresh = self._completions().keys() & self.foreign.commits - before.keys()
        if any(self._completions()[each] < max(before.values(), default="") for each in fresh):
            self.reached["foreign commit below what was there"] += 1
        trails = [
            actor.process.trail[-1]
            for actor in self._actors()
            if actor.process.status is Status.FROZEN and actor.process.name.startswith("assigner")
        ]
        if fresh and any("assign_claim" in each for each in trails):
            self.reached["foreign commit not seen by who claims"] += 1

    def _wait_for_the_lock(self) -> None:
        """Hudi tries again and again. Meanwhile the coordinator's loop goes round, and gives a lock back that
        only waits for the clocks; one that is held for work stays.
        """
        for number in range(_TRIES):
            if read_lock(self.storage.memory) is None:
                if number:
                    self.reached["foreign waits until clocks agree"] += 1
                return
            actor = self._coordinator()
            if actor is None or actor.service.context is None:
                return
            self.clock.advance(_TRY_S)
            self._carried(actor, partial(actor.process.step, partial(tick_lock, actor.service.context)))

    def _do_reader(self, what: str) -> None:
        if what == "begin":
            self.judge.reader_begins(self.clock.now_ms())
        else:
            self.judge.reader_ends(self.clock.now_ms(), self.config.table_services.clean.retain_ms)
