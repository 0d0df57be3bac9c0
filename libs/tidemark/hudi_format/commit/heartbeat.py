"""Heartbeats of running commits: the empty file `.hoodie/.heartbeat/<instant>`; its modification time is that
of the last beat.

A writer with lazy cleaning of failed writes rolls an instant back when its heartbeat is missing or older than
two intervals. A single writer needs the file too: after a failed instant without a heartbeat and a later
completed one, every write of Spark fails (FORMAT.md, section 9.2, trap 1). The order is therefore:

1. the first beat (`begin`)
2. the requested file, and all the rest of the commit; a beat (`keep`) at least every `INTERVAL_MS`
3. the completed file, or the end of the rollback
4. the heartbeat is removed (`stop`)
"""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.publication.port import Publication, Term
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import DATA_ROOT

INTERVAL_MS: Final = 60_000
MISSES_TOLERATED: Final = 2


def heartbeat_path(instant: str, root: str = DATA_ROOT) -> str:
    """The path of the instant's heartbeat, relative to the table's base."""
    return join_path(root, ".heartbeat", instant)


def begin(term: Term, instant: str) -> None:
    """Makes the heartbeat, or beats if it is there. Follow with `keep` at least every `INTERVAL_MS`.

    Raises `FencedOutError` when a newer coordinator has ended the term.
    """
    term.put_pending(heartbeat_path(instant), b"")
    keep(term, instant)


def keep(term: Term, instant: str) -> None:
    """Beats if the heartbeat is there. It never makes one: a rollback of the instant removed it."""
    term.keep_pending(heartbeat_path(instant))


def is_alive(publication: Publication, instant: str, now_ms: int) -> bool:
    """Whether there is a heartbeat, and its last beat is not older than Hudi's writers tolerate.

    `now_ms`: of `Publication.now_ms`, asked before, or of our own clock where that is earlier. Either may be
    ahead of what the storage said at the last beat.
    """
    beaten_ms = publication.written_ms(heartbeat_path(instant))
    return beaten_ms is not None and now_ms - beaten_ms <= INTERVAL_MS * MISSES_TOLERATED


def stop(storage: Storage, instant: str, root: str = DATA_ROOT) -> bool:
    """Removes the heartbeat; False when there was none."""
    return storage.delete(heartbeat_path(instant, root))
