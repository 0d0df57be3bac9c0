"""A command that is about to switch an index on, or to repair it, asks the coordinator for a moment without
commits.

The command reads what was committed since its last round, and writes the index only if nothing was committed
meanwhile. On a busy table something always is. So the command leaves a document that it writes again and
again, and while that changes no epoch is planned; the epoch that is open ends as always. Table services go
on.

    10:00:00  the document is there. Epoch 7 is open: its rows are written and committed
    10:00:02  epoch 8 is not planned. The command reads what epoch 7 changed
    10:00:03  nothing was committed since: the index is switched on, and the document goes
    10:00:04  epoch 8 is planned, with the entries of the index

Safety does not rest on it: the command looks under the lock whether anything was committed or is pending. So
a command that is silent for `SILENT_MS`, or asks for longer than `REST_MS_MAX`, is not waited for any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_text

if TYPE_CHECKING:
    from tidemark.commit_coordinator.commit.context import Context

ASKED: Final = join_path(ROOT, "index-at-rest")
SILENT_MS: Final = 10_000
REST_MS_MAX: Final = 120_000
# Records wait for the end of a rest.
_LOOK_MS: Final = 200


@dataclass(frozen=True)
class AskedRest:
    """What a command asked for, as this coordinator saw it last: the document's text, since when it has this
    text, and since when that command asks (Unix epoch, milliseconds).
    """

    text: str
    changed_ms: int
    since_ms: int

    def is_of(self, text: str) -> bool:
        """Whether the text is one of the same command."""
        return self.text.rpartition(" ")[0] == text.rpartition(" ")[0]


class Rest:
    """For the command: asks for a moment without commits of the coordinator's while it makes the index.
    ``storage``: fenced. ``nonce``: of the command.
    """

    def __init__(self, storage: Storage, index: str, nonce: str) -> None:
        self._storage, self._command, self._count = storage, f"{index} {nonce}", 0

    def ask(self) -> None:
        """Asks, or asks on: call it again and again."""
        self._count += 1
        self._storage.replace(ASKED, f"{self._command} {self._count}".encode())

    def end(self) -> None:
        """Commits may go on."""
        if self._count:
            self._storage.delete(ASKED)


def refuse_during_rest(context: Context) -> None:
    """Raises AttemptLostError while a living command asks that no epoch is planned."""
    text = _asked(context.storage)
    if not text:
        context.rest = None
        return
    now_ms, seen = context.clock.now_ms(), context.rest
    if seen is None or not seen.is_of(text) or now_ms < seen.changed_ms:
        seen = AskedRest(text, now_ms, now_ms)
    elif seen.text != text:
        seen = AskedRest(text, now_ms, seen.since_ms)
    context.rest = seen
    if now_ms - seen.changed_ms >= SILENT_MS or now_ms - seen.since_ms >= REST_MS_MAX:
        return
    index = text.partition(" ")[0]
    raise AttemptLostError(
        f"a `tidemark index` command is about to write {index}, and no epoch is planned for a moment. "
        "Nothing is lost, all input is kept; commits go on when it has ended",
        rewind=False,
        awaited=index,
        look_ms=_LOOK_MS,
    )


def _asked(storage: Storage) -> str:
    try:
        return read_text(storage, ASKED)
    except FileMissingError:
        return ""
