"""What each verb of a script does (`script.VERBS`)."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable

from commit_coordinator.inbox import HurryUp
from stream_runtime.kafka.memory import EndFault
from stream_runtime.kafka.ports import TopicPartition
from stream_runtime.rpc.errors import RpcError
from tests.simulation.world.actors import (
    CoordinatorActor,
    StageActor,
    WriterActor,
)
from tests.simulation.world.checkers.model import Change, Row
from tests.simulation.world.process import Cut, Status
from tests.simulation.world.script import Event
from tests.simulation.world.settings import DELETE_FIELD, INPUT, TABLE
from tests.simulation.world.town import Seat, Town


class Events(Town):
    """A method `_do_<verb>` per verb, with the event's words."""

    def apply(self, event: Event) -> None:
        """One event; words that fit nothing that is there do nothing."""
        verb, *words = event
        handler: Callable[..., None] = getattr(self, f"_do_{verb.replace('-', '_')}")
        handler(*words)

    def _do_feed(self, kind: str, key: str = "", *words: str) -> None:
        if kind == "bad":
            self._broken += 1
            self._produce(key, None, b"{broken")
            return
        number = len(self._sent)
        if kind == "up":
            row = Row(words[0], int(words[1]), number)
            document = {"id": key, "day": row.day, "ts": row.at, "v": number}
            self._sent.append(Change(key, row, row.at))
            self._produce(key, None, json.dumps(document).encode())
        elif kind == "del":
            at = int(words[0])
            self._sent.append(Change(key, None, at if self.setup.ordered else None))
            self._produce(key, None, json.dumps({"id": key, "ts": at, DELETE_FIELD: True}).encode())
        else:
            self._sent.append(Change(key, None, None))
            self._produce(key, key.encode(), None)

    def _produce(self, record_key: str, key: bytes | None, value: bytes | None) -> None:
        partition = zlib.crc32(record_key.encode()) % self.setup.inputs
        running, self.broker._running = self.broker._running, True
        self.broker.produce(TopicPartition(INPUT, partition), key, value, ())
        self.broker._running = running

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
        self.foreign.machine_crashed(self.storage.crash())
        self._deletions_lost = True
        for disk in self._disks.values():
            for folder in disk.folders:
                folder.lose(int(batches))

    def _do_end_fault(self, identity: str, fault: str) -> None:
        self.broker.faults.on_next_end(f"{TABLE}-{identity}", EndFault[fault])

    def _do_late_ends(self) -> None:
        if self.broker._running:
            self.broker.deliver_late_ends()

    def _do_lose_message(self, role: str) -> None:
        self.broker.faults.lose_messages(f"{TABLE}.{role}")

    def _do_lose_ack(self, role: str) -> None:
        self.broker.faults.lose_acknowledgements(f"{TABLE}.{role}")

    def _do_markers(self, milliseconds: str) -> None:
        self.broker.faults.marker_delay_max_s = int(milliseconds) / 1000

    def _do_broker(self, state: str) -> None:
        if state == "down":
            self.broker.stop()
        else:
            self.broker.start()

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
            context = actor.service._context
            assert context is not None
            # As a torn range would have an assigner say.
            generation = context.fold().state.generation
            actor.loop._coordinator.want_rewind("an assigner asks for it", generation)

    def _do_hurry(self) -> None:
        actor = self._coordinator()
        if actor is not None:
            actor.service._inbox.put(HurryUp())

    def _do_foreign(self, kind: str, *words: str) -> None:
        self.judge.topics.follow()
        plan, epoch = self.judge.topics.counted()[0].planned, self.judge.epoch
        if not self.foreign.act(kind, *words):
            self.log.append(f"    it does not: {self.foreign.said}")
            return
        self.reached[f"foreign {kind}"] += 1
        if plan is not None:
            self.reached[f"foreign {kind} in an attempt"] += 1
        if kind in ("begin", "plan-compaction", "plan-clustering"):
            self._begun[kind] = epoch
        begun = {"finish": "begin", "run-compaction": "plan-compaction", "run-clustering": "plan-clustering"}
        if kind in begun and self._begun.get(begun[kind], epoch) < epoch:
            self.reached[f"foreign {kind} over our commit"] += 1

    def _do_reader(self, what: str) -> None:
        if what == "begin":
            self.judge.reader_begins()
        else:
            self.judge.reader_ends()
