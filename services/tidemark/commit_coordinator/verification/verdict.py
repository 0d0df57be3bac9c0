"""The result of a verification, and a file that stores the last verdict.

An alarm must outlive the process that raised it. A file that is missing, damaged or of another table counts
as no verdict.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

_KEPT: Final = ("agrees", "as_of", "differences")
_log = logging.getLogger("tidemark.coordinator")


@dataclass(frozen=True)
class VerificationResult:
    """The result of a verification; `seconds`: how long it took; `ended_ms`: when it ended (Unix epoch)."""

    answer: dict[str, Any]
    seconds: float
    ended_ms: int

    @property
    def agrees(self) -> bool | None:
        """Whether rows, record index and files agree; None when that could not be decided."""
        return None if "error" in self.answer else bool(self.answer["agrees"])

    @property
    def differences(self) -> int:
        """The number of differences, of all kinds."""
        return sum(kind["count"] for kind in self.answer.get("differences", {}).values())


class _Differences(msgspec.Struct):
    count: int
    examples: list[str]


class _Answer(msgspec.Struct, omit_defaults=True):
    agrees: bool
    as_of: str | None = None
    differences: dict[str, _Differences] = {}


class _Kept(msgspec.Struct):
    table: str
    answer: _Answer
    seconds: float
    ended_ms: int


class VerdictFile:
    """The file of the last verdict. ``table``: the table's path; a verdict of another path is ignored."""

    def __init__(self, path: Path, table: str) -> None:
        self._path, self._table = path, table

    def load(self) -> VerificationResult | None:
        """The last saved verdict; None if there is none, or the file is damaged or of another table."""
        try:
            kept = msgspec.json.decode(self._path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            _log.warning("the last verdict in %s cannot be read: %s", self._path, error)
            return None
        if kept.table != self._table:
            return None
        return VerificationResult(msgspec.to_builtins(kept.answer), kept.seconds, kept.ended_ms)

    def save(self, verdict: VerificationResult) -> None:
        """Replaces the saved verdict. If that fails it is logged, and the verdict holds in this process."""
        answer = {name: verdict.answer[name] for name in _KEPT if name in verdict.answer}
        document = {
            "table": self._table,
            "answer": answer,
            "seconds": verdict.seconds,
            "ended_ms": verdict.ended_ms,
        }
        part = self._path.with_suffix(".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(msgspec.json.encode(document))
            part.replace(self._path)
        except OSError as error:
            _log.warning("the verdict cannot be kept for the next start: %s", error)
