"""Orders that outlive the coordinator: to pause, and to go on. The loop makes entries of the decisions of
them, in the order in which they were given.

The caller hears "done" only when that has happened to this very order. A coordinator that has stopped for
good takes no order any more, and one that ends before it has taken an order takes the order along.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as NotAnsweredError
from typing import Final

from tidemark.commit_coordinator.calls.inbox import Inbox, Order
from tidemark.commit_coordinator.commit.view import ViewBoard
from tidemark.commit_coordinator.refusals import CoordinatorStoppedError
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.rpc.interceptors import left_s

_TAKEN_S: Final = 15.0
_ANSWER_S: Final = 0.5


def give_order(order: Order, board: ViewBoard, inbox: Inbox) -> None:
    """Leaves the order for the loop, and returns once the loop has taken it and shows a view with it.

    Raises CoordinatorStoppedError, InboxFullError, and DeadlineExceededError when the loop is busy for longer
    than 15 seconds, or than the call may take: it still takes the order later, before any later one.
    """
    if (view := board.current).stopped:
        raise CoordinatorStoppedError(view.halted or "")
    inbox.put(order)
    try:
        order.taken.result(max(left_s(_TAKEN_S) - _ANSWER_S, 0.1))
    except NotAnsweredError:
        raise DeadlineExceededError(
            "the coordinator is busy, and has not taken the order yet: unless it ends first, it takes it "
            "later, before orders that are given after it. `tidemark status` shows what holds"
        ) from None
