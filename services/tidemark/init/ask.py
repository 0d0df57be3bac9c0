"""Asks questions on a terminal, each with a proposal that Return accepts. Without a terminal every proposal
is accepted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.console.output import printable
from tidemark.init.candidates import Candidate

_TRIES_MAX: Final = 5
NONE: Final = "none"


@dataclass(frozen=True)
class Asker:
    """Asks the user, or accepts every proposal if `interactive` is False."""

    interactive: bool
    say: Callable[[str], None]
    read: Callable[[], str] = lambda: sys.stdin.readline()

    @classmethod
    def of_terminal(cls, say: Callable[[str], None], wanted: bool) -> Asker:
        """An asker that is interactive if `wanted`, and if stdin and stderr are a terminal."""
        return cls(wanted and sys.stdin.isatty() and sys.stderr.isatty(), say)

    def choose(
        self, what: str, candidates: Sequence[Candidate], columns: Sequence[str], optional: bool
    ) -> tuple[str, ...]:
        """The columns that the user chose, () for none. The first candidate is the proposal."""
        proposal = candidates[0].fields if candidates else ()
        if not self.interactive:
            return proposal
        self.say(f"\n{what}:")
        for number, candidate in enumerate(candidates, 1):
            self.say(f"  {number}  {', '.join(candidate.fields)}: {printable(candidate.reason)}")
        shown = ", ".join(proposal) or (NONE if optional else "")
        hint = f", or {NONE}" if optional else ""
        for _ in range(_TRIES_MAX):
            self.say(f"a number, or columns separated by commas{hint} [{shown}]:")
            answer = self.read()
            if not answer:
                return proposal
            chosen = self._understood(answer.strip(), proposal, candidates, columns, optional)
            if chosen is not None:
                return chosen
        return proposal

    def _understood(
        self,
        answer: str,
        proposal: tuple[str, ...],
        candidates: Sequence[Candidate],
        columns: Sequence[str],
        optional: bool,
    ) -> tuple[str, ...] | None:
        if not answer:
            return proposal if proposal or optional else None
        if answer.isdecimal() and 1 <= int(answer) <= len(candidates):
            return candidates[int(answer) - 1].fields
        if optional and answer.lower() == NONE:
            return ()
        names = tuple(name.strip() for name in answer.split(","))
        unknown = [name for name in names if name not in columns]
        if unknown:
            self.say(f"there is no column {', '.join(unknown)}; there are {', '.join(columns)}")
            return None
        return names
