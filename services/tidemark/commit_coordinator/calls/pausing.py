"""When a stage must pause: an operator wants it, the coordinator has halted, or too much is uncommitted."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.domain.membership import Uncommitted
from tidemark.config.model import LimitsConfig
from tidemark.epoch_protocol.entries import Stage


@dataclass(frozen=True)
class Pause:
    """Whether the stage must pause, and why."""

    paused: bool
    reason: str


def pause_of(
    stage: Stage, view: CoordinatorView, held: Uncommitted, limits: LimitsConfig, memory_max: int
) -> Pause:
    """Whether the stage must pause now. ``held``: by live assigners; ``memory_max``: bytes of it at most.

    While an epoch that was given up is tried again nothing rests for it: a rewind may come first, whose lanes
    are tagged anew. If the fold holds too many shuffle transactions, only the shuffle stage pauses: tagging
    and commits make them fewer.
    """
    halted = None if view.tries_again else view.halted
    if view.paused or halted or view.trouble:
        return Pause(True, halted or view.trouble or view.pause_reason)
    if limits.uncommitted_entries is not None and held.entries >= limits.uncommitted_entries:
        return Pause(
            True,
            f"{held.entries} uncommitted index entries "
            f"(limits.uncommitted_entries is {limits.uncommitted_entries})",
        )
    if held.entries and held.memory >= memory_max:
        return Pause(
            True,
            f"uncommitted index entries take {held.memory} bytes "
            f"(three eighths of state.memory are {memory_max})",
        )
    if stage is Stage.SHUFFLE and view.shuffled_transactions >= limits.shuffled_transactions:
        return Pause(
            True,
            f"{view.shuffled_transactions} shuffle transactions are not committed "
            f"(limits.shuffled_transactions is {limits.shuffled_transactions})",
        )
    if stage is Stage.ASSIGN and view.tagging_rests:
        return Pause(True, view.tagging_rests)
    if stage is Stage.ASSIGN:
        return _rest_of_assigners(view, limits)
    return Pause(False, "")


def _rest_of_assigners(view: CoordinatorView, limits: LimitsConfig) -> Pause:
    """Whether assigners must pause because too many tagged transactions or bytes are not committed.

    The number of index entries is not enough to tell: without an ordering field an update makes no entry.
    """
    if view.uncommitted_transactions >= limits.uncommitted_transactions:
        return Pause(
            True,
            f"{view.uncommitted_transactions} tagged transactions are not committed "
            f"(limits.uncommitted_transactions is {limits.uncommitted_transactions})",
        )
    if view.uncommitted_bytes >= limits.uncommitted_bytes:
        return Pause(
            True,
            f"{view.uncommitted_bytes} tagged bytes are not committed "
            f"(limits.uncommitted_bytes is {limits.uncommitted_bytes})",
        )
    return Pause(False, "")
