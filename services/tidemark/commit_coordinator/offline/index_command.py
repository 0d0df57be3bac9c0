"""What the commands that change a secondary index beside a running coordinator have in common: the table's
lock, and a moment in which nothing was committed since the last look (`at_rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeVar

from tidemark.commit_coordinator.commit.index_at_rest import Rest
from tidemark.commit_coordinator.offline.adoption import AdoptionError
from tidemark.commit_coordinator.offline.lock_wait import LockWait
from tidemark.hudi_format.commit.heartbeat import is_alive
from tidemark.hudi_format.errors import FencedOutError, LockLostError
from tidemark.hudi_format.metadata_table.secondary_creation import Hit
from tidemark.hudi_format.metadata_table.secondary_repair import end_killed, has_killed
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.file_times import file_time_ms
from tidemark.hudi_format.publication.locate import command_beside, open_publication
from tidemark.hudi_format.publication.port import Command
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Instant, Timeline, load_timeline
from tidemark.hudi_format.validation import UNSAFE_PENDING
from tidemark.ledger_client.table_identity import known_ledger_id
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.retry import Deadline

TRIES_MAX: Final = 20
PENDING_WAIT_S: Final = 120.0
_LOOK_MS: Final = 500
T = TypeVar("T", covariant=True)


class Last(Protocol[T]):
    """The last step of a command."""

    def look(self, alive: Callable[[int, int], None]) -> MetadataTableSnapshot:
        """Reads what was committed since the last call, and prepares the step. Calls `alive` now and then."""
        ...

    def is_next(self, metadata: Timeline) -> bool:
        """Whether what is prepared is still right by the metadata table's timeline."""
        ...

    def act(self, timelines: tuple[Timeline, Timeline]) -> T:
        """Takes the step, under the table's lock. `timelines`: as `IndexCommand.timelines`."""
        ...


class IndexCommand:
    """Acts on one table. `say` is told how far it is, `hit` each step under the lock."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        ids: IdSource,
        say: Callable[[str], None] = lambda text: None,
        hit: Hit = lambda place: None,
    ) -> None:
        self.storage, self.clock, self._ids = storage, clock, ids
        self.say, self.hit = say, hit
        self._times = InstantGenerator(clock)

    def wait_for(self, pending: Sequence[Instant], deadline: Deadline) -> None:
        """Waits a moment, without the lock, while the writers of these instants are alive. Raises
        AdoptionError for one that is not, and once the deadline is over.
        """
        is_over = deadline.is_over
        publication = open_publication(self.storage, self.clock, self._ids)
        now_ms = file_time_ms(publication, self.clock)
        dead = [one for one in pending if is_over or not is_alive(publication, one.requested, now_ms)]
        if dead:
            # A writer that has ended meanwhile has no beat either: its instant is not pending any more.
            still = {one.requested for one in load_timeline(self.storage).pending()}
            refuse_pending([one for one in dead if one.requested in still])
        self.clock.sleep_ms(_LOOK_MS)

    def timelines(self) -> tuple[Timeline, Timeline]:
        """Those of the table and of its metadata table."""
        return load_timeline(self.storage), load_timeline(self.storage, METADATA_TABLE_ROOT)

    def later(self, timelines: tuple[Timeline, Timeline]) -> str:
        """A time later than those of both timelines, and than all before."""
        for timeline in timelines:
            self._times.observe(timeline.times())
        return self._times.next()

    def at_rest(self, by: Command, index: str, last: Last[T]) -> T:
        """Takes the last step as soon as nothing was committed since its last look and no write is pending;
        asks the coordinator for that. `index`: of which the coordinator says so.

        Another engine's write that is pending is waited for while it is alive. Where others commit more often
        than a look takes, the last of `TRIES_MAX` is under the lock. Raises AdoptionError where a coordinator
        left its lock or a write stays pending, LockHeldError, FencedOutError.
        """
        with self._asking(by, index) as rest:
            return _AtRest(self, by, rest).take(last)

    @contextmanager
    def _asking(self, by: Command, index: str) -> Iterator[Rest]:
        rest = Rest(by.storage, index, self._ids.uuid())
        try:
            yield rest
        finally:
            rest.end()

    @contextmanager
    def command(self) -> Iterator[Command]:
        """The right to change the table, until the end of the block. What a killed one left is made whole
        first, so it raises as `locked`.
        """
        ledger = known_ledger_id(self.storage)
        with command_beside(self.storage, self.clock, self._ids, ledger) as by:
            if has_killed(self.storage):
                with self.locked(by):
                    end_killed(by)
            yield by

    @contextmanager
    def locked(self, by: Command, beat: Callable[[], None] | None = None) -> Iterator[None]:
        """Holds the lock. Raises as `LockWait.acquire` where it is not to be had. ``beat``: called again and
        again while the lock is waited for; by default the command's own sign of life.
        """
        LockWait(self.storage, self.clock, self.say, beat or by.beat).acquire(by.lock)
        is_lost: tuple[type[Exception], ...] = ()
        try:
            yield
        except FencedOutError:
            # Who ended this command has taken its lock, too: that is no other error.
            is_lost = (LockLostError,)
            raise
        finally:
            with suppress(*is_lost):
                by.lock.release(self._times.taken_ms)
                by.lock.free()


class _AtRest:
    """How one command comes to its last step."""

    def __init__(self, command: IndexCommand, by: Command, rest: Rest) -> None:
        self._command, self._by, self._rest, self._asks = command, by, rest, False

    def take(self, last: Last[T]) -> T:
        command, by = self._command, self._by
        deadline = Deadline(command.clock, PENDING_WAIT_S)
        for _ in range(TRIES_MAX):
            self._alive()
            seen = last.look(self._alive)
            with command.locked(by, self._alive):
                timelines = command.timelines()
                if _is_as_of(seen, timelines[0]) and last.is_next(timelines[1]):
                    return last.act(timelines)
            self._asks = True
            self._wait_for_pending(deadline)
        with command.locked(by, self._alive):
            timelines = command.timelines()
            refuse_pending(timelines[0].pending(*UNSAFE_PENDING))
            last.look(self._alive)
            return last.act(timelines)

    def _wait_for_pending(self, deadline: Deadline) -> None:
        while pending := self._command.timelines()[0].pending(*UNSAFE_PENDING):
            self._alive()
            self._command.wait_for(pending, deadline)

    def _alive(self, done: int = 0, left: int = 0) -> None:
        self._by.beat()
        if self._asks:
            self._rest.ask()


def _is_as_of(seen: MetadataTableSnapshot, data: Timeline) -> bool:
    """Whether nothing was completed, undone or archived since, and nothing is pending that could bring
    rows.
    """
    is_same = set(data.completed()) == set(seen.data_timeline.completed())
    return is_same and not data.pending(*UNSAFE_PENDING)


def refuse_pending(pending: Sequence[Instant]) -> None:
    """Raises AdoptionError where there is one."""
    if pending:
        instant = min(pending, key=lambda one: one.requested)
        raise AdoptionError(
            f"{instant.action.value} {instant.requested} is pending, and the index would miss its rows: "
            "let its writer finish; what a coordinator left `tidemark recover` ends"
        )
