"""Protocols for what the format library needs from its environment.

Time and ids are always arguments, so that a simulation can replay a run from its seed. The real
implementations are in the services' runtime library; storage has its own protocol in
`hudi_format.storage.base`.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall clock and sleep, in milliseconds."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, UTC. May step backwards: see `model.InstantGenerator`."""
        ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Blocks for about `duration_ms` milliseconds."""
        ...


class IdSource(Protocol):
    """Creates ids that are unique across processes."""

    def uuid(self) -> str:
        """A random UUID in its canonical text form: 36 characters, lower case."""
        ...
