"""A file in the table's folder that changes as long as a coordinator serves the table, also an idle one.

A command that ends ledgers watches it (`offline.watch`): health is asked at the configured address only, and
a coordinator of the same folder may serve at another one, or on another machine. Whoever asks watches whether
the file changes, so no clock of two machines is compared. It says who is there; what keeps a coordinator that
nobody saw from harm is the fence (terms, claims), as ever.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Final

from tidemark.hudi_format.errors import FencedOutError, FileMissingError, HudiFormatError
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT

SIGN: Final = join_path(ROOT, "sign-of-life")
CHANGES_EVERY_S: Final = 5.0
_log = logging.getLogger(__name__)


class SignOfLife:
    """A context manager: inside, the file changes on a thread of its own; at the end it is removed."""

    def __init__(self, term: Term, owner: str, looks: Callable[[], None] = lambda: None) -> None:
        """The right to write ends with the ``term``. ``owner``: the coordinator's name. ``looks`` is called
        as often, on the same thread.
        """
        self._term, self._owner, self._looks = term, owner, looks
        self._changes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sign-of-life", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        with contextlib.suppress(OSError, HudiFormatError):
            # A successor's stays.
            if shown_sign(self._term.storage).partition(" ")[0] == self._owner:
                self._term.storage.delete(SIGN)

    def change(self) -> None:
        """Raises FencedOutError when the term is over, OSError."""
        self._changes += 1
        content = f"{self._owner} {self._changes}"
        self._term.replace(SIGN, content.encode())

    def _run(self) -> None:
        while True:
            try:
                self.change()
                self._looks()
            except FencedOutError:
                return
            except (OSError, HudiFormatError) as error:
                _log.warning("%s could not be written, trying again: %s", SIGN, error)
            if self._stopped.wait(CHANGES_EVERY_S):
                return


def shown_sign(storage: Storage) -> str:
    """What the file says now; "" when there is none."""
    try:
        return bytes(storage.read(SIGN)).decode(errors="replace")
    except FileMissingError:
        return ""
