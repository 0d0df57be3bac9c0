"""A world that tells, event by event, what its processes decide, and what appears in topics and table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.simulation.traces.entry_words import decision_words, ledger_words
from tests.simulation.traces.file_words import DEFINITIONS, file_words
from tests.simulation.traces.traced_broker import TracedGround
from tests.simulation.world.actors import Actor
from tests.simulation.world.process import Process
from tests.simulation.world.script import Event, Script
from tests.simulation.world.world import World
from tidemark.epoch_protocol.entries import (
    BatchShuffled,
    LedgerEntry,
    TransactionTagged,
    decode_decision,
    decode_ledger_entry,
)

REST: Final = ("rest",)
"""Not in a script: what follows when its events are over."""
DELETE_LOCK: Final = "delete-lock"
"""An event of traces alone: a person deletes the table's lock by hand."""
_CALLS: Final = {
    "Join": "joins the coordinator's members",
    "Begin": "asks what to write for the attempt",
    "ReportWritten": "reports that the attempt is written",
    "LeaseFileGroups": "leases file groups for new rows",
    "RequestRewind": "asks for a rewind",
}
_ANOTHER: Final = "other engine"
_ERROR_CHARACTERS: Final = 220


class TracedWorld(World):
    """``blocks``: per event what happened because of it, in order; the last one is `REST`."""

    def __init__(self, script: Script) -> None:
        self.blocks: list[tuple[Event, list[str]]] = []
        self._read_up_to = {"ledger": 0, "epochs": 0}
        self._frozen: set[str] = set()
        ground = TracedGround(script.setup)
        super().__init__(script, ground)
        ground.broker.acting = lambda: named(self._acting or _ANOTHER)
        ground.broker.tell = self._tell

    def apply(self, event: Event) -> None:
        self.blocks.append((event, []))
        super().apply(event)
        self._tell_entries(_ANOTHER)

    def _settle(self) -> None:
        self.blocks.append((REST, []))
        super()._settle()

    def _do_delete_lock(self) -> None:
        self.storage.delete_tree(".hoodie/lock")

    def _tell(self, who: str, words: str) -> None:
        if words and self.blocks:
            self.blocks[-1][1].append(f"{named(who):13} {words}")

    def _stored(self, path: str) -> None:
        who = self._acting or _ANOTHER
        # What the entry said was read before the file was made.
        self._tell_entries(who)
        if self.blocks and self.blocks[-1][0] == (DELETE_LOCK,):
            self._tell("a person", "deletes the table's lock")
        elif path == DEFINITIONS and who == _ANOTHER:
            self._tell(who, "writes which indexes the table has, and of which columns")
        else:
            self._tell(who, file_words(path, self.storage.memory.exists(path)))
        super()._stored(path)

    def _carried(self, actor: Actor, work: Callable[[], None]) -> None:
        name, before = actor.process.name, len(self.log)

        def told() -> None:
            try:
                work()
            finally:
                self._tell_entries(name)

        super()._carried(actor, told)
        for line in self.log[before:]:
            self._tell(name, self._end_words(name, line.strip().removeprefix(f"{name} ")))

    def _end_words(self, name: str, said: str) -> str:
        """Of a line of the world's own log about a process, which repeats where one stands still."""
        stood, place = name in self._frozen, said.removeprefix("is frozen at ")
        self._frozen.discard(name)
        if place != said:
            self._frozen.add(name)
            return "" if stood else f"stands still at {place}"
        place = said.removeprefix("is gone at ")
        return f"is killed at {place}" if place != said else said[:_ERROR_CHARACTERS]

    def _call(self, caller: Process, path: str, request: Any) -> Any:
        method = path.rpartition("/")[2]
        self._tell_entries(caller.name)
        self._tell(caller.name, _CALLS.get(method, ""))
        return super()._call(caller, path, request)

    def _tell_entries(self, who: str) -> None:
        """Those that became readable since the last look, before whatever follows on them."""
        for role in ("ledger", "epochs"):
            found, self._read_up_to[role] = self._read(f"t.{role}", 0, self._read_up_to[role])
            for sent in found:
                value = sent.value or b""
                if role == "epochs":
                    self._tell(who, decision_words(sent.offset, decode_decision(value)))
                else:
                    entry = decode_ledger_entry(value)
                    self._tell(who, ledger_words(sent.offset, entry, self._counts(sent.offset, entry)))

    def _counts(self, offset: int, entry: LedgerEntry) -> bool:
        self.judge.topics.follow()
        _, counted = self.judge.topics.counted()
        if isinstance(entry, BatchShuffled):
            return offset in {at for at, _ in counted.shuffled}
        return not isinstance(entry, TransactionTagged) or offset in {at for at, _ in counted.tagged}


def named(process: str) -> str:
    """`assigner-0#0` is the first process of its seat, which goes by the seat's name alone."""
    seat, _, number = process.partition("#")
    return seat if number in ("", "0") else f"{seat}'{number}"
