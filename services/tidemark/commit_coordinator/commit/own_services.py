"""What our own service actions put on the data timeline while they are decided and not ended.

A data compaction moves no key, and the writes that `rollback` undoes never completed: nothing of either was
taken into a cache or a tag, so neither is another writer's work that asks for a rewind.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.commit.table_state import rolled_back_by
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action, Instant


class DecidedService(msgspec.Struct, frozen=True, omit_defaults=True, tag="decided_service"):
    """The document that a decision names. ``kind`` and ``instant`` tell whose it is if the decisions are
    lost. ``plan``: as it held then, in the form of its kind.
    """

    kind: ServiceKind
    instant: str
    plan: bytes
    outcomes: bytes = b""
    tickets: tuple[Ticket, ...] = ()


class DeadInstants(msgspec.Struct, frozen=True):
    """The plan of a rollback: requested times of the data timeline."""

    instants: tuple[str, ...]


def dead_instants_of(plan: bytes, path: str) -> tuple[str, ...]:
    """The writes that a rollback undoes. Raises CorruptFileError, which names ``path``."""
    try:
        return msgspec.json.decode(plan, type=DeadInstants).instants
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path}: the plan is not readable: {error}") from error


@dataclass(frozen=True)
class DecidedByOurs:
    """``compacted``: instants of decided data compactions. ``dead``: instants that a decided rollback undoes,
    and ``dead_from``: the time of that decision, which all its rollbacks are after.
    """

    compacted: frozenset[str]
    dead: frozenset[str]
    dead_from: str

    @classmethod
    def of(cls, storage: Storage, state: FoldState) -> DecidedByOurs:
        """Reads what is decided. Raises FileMissingError, CorruptFileError."""
        compaction = state.services.get(ServiceKind.COMPACT_DATA)
        rollback = state.services.get(ServiceKind.ROLLBACK)
        decided = None if rollback is None else rollback.decided
        is_decided = compaction is not None and compaction.decided is not None
        return cls(
            frozenset({compaction.planned.instant} if compaction is not None and is_decided else ()),
            frozenset() if decided is None else frozenset(_dead(storage, decided)),
            "" if decided is None else decided.data_completion,
        )

    def undoes(self, storage: Storage, rollback: Instant) -> bool:
        """Whether the instant is a rollback of ours. One of another engine that took the same write away
        before the decision is none. Raises CorruptFileError.
        """
        if rollback.action is not Action.ROLLBACK or not self._is_after(rollback.requested):
            return False
        return self.dead.issuperset(rolled_back_by(storage, rollback))

    def undid(self, requested: str, undone: Collection[str]) -> bool:
        """`undoes`, of an archived rollback that was requested then and names these instants."""
        return self._is_after(requested) and self.dead.issuperset(undone)

    def _is_after(self, requested: str) -> bool:
        return bool(self.dead) and requested > self.dead_from


def _dead(storage: Storage, decided: ServiceDecided) -> tuple[str, ...]:
    path = decided.statuses_path
    document = load_document(storage, path, decided.statuses_sha256)
    return dead_instants_of(msgspec.json.decode(document, type=DecidedService).plan, path)
