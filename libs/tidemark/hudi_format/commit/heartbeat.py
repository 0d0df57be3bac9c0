"""Heartbeats of running commits: the file `.hoodie/.heartbeat/<instant>`, empty, its time is the last beat.

Other writers with lazy cleaning of failed writes roll an instant back whose heartbeat is older than two
intervals or missing. The file matters in single-writer mode too: a failed instant without it, followed by a
completed one, wedges Spark (FORMAT.md, section 9.2, trap 1). So: beat before the requested file exists, stop
after completion or rollback.
"""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.publication.port import Publication, Term
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import DATA_ROOT

INTERVAL_MS: Final = 60_000
MISSES_TOLERATED: Final = 2


def heartbeat_path(instant: str, root: str = DATA_ROOT) -> str:
    """Where the instant's heartbeat lies, relative to the table's base."""
    return join_path(root, ".heartbeat", instant)


def begin(term: Term, instant: str) -> None:
    """The first beat; to be followed by one every `INTERVAL_MS` at least. Repeatable. Raises
    `FencedOutError`.
    """
    term.put_pending(heartbeat_path(instant), b"")
    keep(term, instant)


def keep(term: Term, instant: str) -> None:
    """Beats if the heartbeat is there: one that another writer has ended with its instant stays away."""
    term.keep_pending(heartbeat_path(instant))


def is_alive(publication: Publication, instant: str, now_ms: int) -> bool:
    """Whether the last beat is not older than Hudi's writers tolerate."""
    beaten_ms = publication.written_ms(heartbeat_path(instant))
    return beaten_ms is not None and now_ms - beaten_ms <= INTERVAL_MS * MISSES_TOLERATED


def stop(storage: Storage, instant: str, root: str = DATA_ROOT) -> bool:
    """Removes the heartbeat; False when there was none."""
    return storage.delete(heartbeat_path(instant, root))
