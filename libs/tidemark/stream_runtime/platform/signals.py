"""SIGTERM and SIGINT as events, for services that end in order.

Python runs a signal handler in the main thread, between any two of its instructions. `threading.Event.set`
in a handler waits for the event's lock, and the main thread may hold it at that very moment, because it waits
for the event: then it waits for itself, and the process never ends. Example: an assigner on a busy machine
was told to stop while its main thread was inside `stop.wait(0.2)`. It renewed its leases and went on until it
was killed. So a handler only puts a number into a `SimpleQueue`, whose `put` may interrupt any other call in
the same thread, and a thread of its own sets the events.
"""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue
from typing import Final

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)


def set_by_signals(*events: threading.Event) -> None:
    """From now on the first SIGTERM or SIGINT sets the first event, the second one the second, and so on.
    Further signals do nothing. To be called in the main thread; a later call takes the signals over.
    """
    arrived: SimpleQueue[int] = SimpleQueue()

    def forward() -> None:
        for event in events:
            arrived.get()
            event.set()

    threading.Thread(target=forward, name="signals", daemon=True).start()
    for number in _STOPPING:
        signal.signal(number, lambda signaled, _: arrived.put(signaled))
