"""Questions on a terminal, each with a proposal that Return takes. Nobody is asked where there is none."""

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
    """`interactive` False: every proposal is taken."""

    interactive: bool
    say: Callable[[str], None]
    read: Callable[[], str] = lambda: sys.stdin.readline()

    @classmethod
    def of_terminal(cls, say: Callable[[str], None], wanted: bool) -> Asker:
        """Asks where somebody sees the question and can answer it."""
        return cls(wanted and sys.stdin.isatty() and sys.stderr.isatty(), say)

    def choose(
        self, what: str, candidates: Sequence[Candidate], columns: Sequence[str], optional: bool
    ) -> tuple[str, ...]:
        """Column names; () for none. The first candidate is the proposal."""
        proposal = candidates[0].fields if candidates else ()
        if not self.interactive:
            return proposal
        self.say(f"\n{what}:")
        for number, each in enumerate(candidates, 1):
            self.say(f"  {number}  {', '.join(each.fields)}: {printable(each.reason)}")
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
        names = tuple(each.strip() for each in answer.split(","))
        unknown = [each for each in names if each not in columns]
        if unknown:
            self.say(f"there is no column {', '.join(unknown)}; there are {', '.join(columns)}")
            return None
        return names
