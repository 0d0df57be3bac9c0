"""A file in the table's folder that changes every few seconds as long as a coordinator serves the table.

A command that ends a ledger watches the file (`offline.watch`). To ask the configured address is not enough:
a coordinator of the same folder may serve at another address, or on another machine. The command looks
whether the file changes, so the clocks of two machines are never compared. Safety does not rest on the file:
a coordinator that nobody saw is fenced by terms and claims, like any other.
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
    """A context manager: inside, its own thread changes the file; at the end the file is deleted."""

    def __init__(self, term: Term, owner: str, looks: Callable[[], None] = lambda: None) -> None:
        """``term``: the right to write. ``owner``: the coordinator's name. ``looks``: called after each
        change, on the same thread.
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
            # A successor's file stays.
            if shown_sign(self._term.storage).partition(" ")[0] == self._owner:
                self._term.storage.delete(SIGN)

    def change(self) -> None:
        """Writes the owner's name and the next number. Raises FencedOutError when the term ended, OSError."""
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
    """The file's content now; "" when there is no file."""
    try:
        return bytes(storage.read(SIGN)).decode(errors="replace")
    except FileMissingError:
        return ""
