"""The outside world as one process sees it: storage, broker, clock and failpoints, each call a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, cast

from testing.clock import ManualClock
from testing.kafka import MemoryKafkaClient
from tests.simulation.world.process import Process
from tidemark.hudi_format.storage.base import Storage
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.kafka.ports import KafkaClient

_READING: Final = frozenset({
    "read", "read_range", "open_input", "stat", "exists", "list", "names", "sizes", "walk", "uploads",
})  # fmt: skip
# Listings with and without sizes are the same place, whichever of a folder's files they are of.
_SAME_PLACE: Final = {"names": "list", "sizes": "list"}
_WRITING: Final = frozenset({
    "create", "replace", "publish", "make_dir", "rename", "rename_over", "delete", "delete_tree", "sync_dir",
    "touch", "upload", "abort", "link", "link_all", "write_in_pieces",
})  # fmt: skip
_CLIENT: Final = frozenset({
    "init", "flush", "send_offsets", "commit", "abort", "assign", "add", "poll", "read", "read_many",
    "create_topics", "delete_topics", "partitions", "describe", "delete_records", "start_offset",
    "end_offset", "check_broker",
})  # fmt: skip


class WorldClock(ManualClock):
    """`jump` moves the wall clock alone, as a time server does."""

    def __init__(self, start_ms: int = 1_750_000_000_000) -> None:
        super().__init__(start_ms)
        self._jumped_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self._jumped_ms

    def jump(self, milliseconds: int) -> None:
        self._jumped_ms += milliseconds


class _Gated:
    """An object whose named methods are places; everything else is passed through. ``writing``: those that
    write to storage.
    """

    def __init__(
        self, inner: Any, process: Process, kind: str, names: frozenset[str], writing: frozenset[str]
    ) -> None:
        self._inner, self._process, self._kind = inner, process, kind
        self._names, self._writing = names, writing

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in self._names:
            # Made when it is first asked for: most objects have few of their methods called.
            place = f"{self._kind}.{_SAME_PLACE.get(name, name)}"
            found = self._process.guarded(place, found, name in self._writing)
            setattr(self, name, found)
        return found


class _GatedStorage(_Gated):
    def link_all(self, links: Sequence[tuple[str, str]]) -> list[str]:
        """A place before each link: a process may die between any two."""
        one = self._process.guarded("storage.link_all", self._inner.link_all, True)
        return [taken for link in links for taken in one([link])]


class _GatedClient:
    """Producers, readers and admins of one process."""

    def __init__(self, inner: MemoryKafkaClient, process: Process) -> None:
        self._inner = inner
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        make = getattr(self._inner, name)
        if name == "last_of_batch":
            return self._process.guarded(name, make)
        return lambda *args, **kwargs: _Gated(
            make(*args, **kwargs), self._process, name, _CLIENT, frozenset()
        )


class _GatedClock:
    def __init__(self, inner: Clock, process: Process) -> None:
        self.now_ms, self.latest_ms = inner.now_ms, inner.latest_ms
        self.monotonic_s = inner.monotonic_s
        self.sleep = process.guarded("clock.sleep", inner.sleep)
        self.sleep_ms = process.guarded("clock.sleep", inner.sleep_ms)


class PlaceFailpoints(FailpointRegistry):
    """Each failpoint is a place."""

    def __init__(self, places: type[StrEnum], process: Process) -> None:
        super().__init__(places)
        self._process = process

    def hit(self, place: StrEnum) -> None:
        self._process.place(f"failpoint {place.value}")


def gated_storage(storage: Any, process: Process) -> Storage:
    """The storage as the process sees it."""
    return cast(Storage, _GatedStorage(storage, process, "storage", _READING | _WRITING, _WRITING))


def gated_kafka(client: MemoryKafkaClient, process: Process) -> KafkaClient:
    """The cluster as the process sees it."""
    return cast(KafkaClient, _GatedClient(client, process))


def gated_clock(clock: Clock, process: Process) -> Clock:
    """Time as the process sees it."""
    return cast(Clock, _GatedClock(clock, process))
