"""What users, scripts and dashboards rely on, as recorded, beside what the code says now."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "recorded"
COMMAND: Final = ".venv/bin/python -m tests.unit.frozen_names"


def file_of(kind: str) -> Path:
    """One name a line, sorted."""
    return FOLDER / f"{kind}.txt"


def recorded(kind: str) -> set[str]:
    """The names of a kind that are frozen."""
    return set(file_of(kind).read_text(encoding="utf-8").splitlines())


def lost(kind: str, frozen: Set[str], now: Set[str]) -> str:
    """What to do about names that are gone; empty when none is."""
    gone = sorted(frozen - now)
    if not gone:
        return ""
    lines = "\n".join(f"  {name}" for name in gone)
    return (
        f"{len(gone)} published names are gone or were renamed ({kind}):\n{lines}\n"
        "Programs, scripts, dashboards and log queries of our users ask for them. Rename inside the code and "
        "give each of these names back where it is published: a name may come, none may go. Only a name that "
        f"no release ever had may be taken out of {file_of(kind).name} by hand."
    )


def unrecorded(kind: str, frozen: Set[str], now: Set[str]) -> str:
    """What to do about names that are new; empty when none is."""
    new = sorted(now - frozen)
    if not new:
        return ""
    lines = "\n".join(f"  {name}" for name in new)
    return (
        f"{len(new)} names are new ({kind}):\n{lines}\n"
        f"From the next release on they can never be taken back. If that is meant: {COMMAND}"
    )


def add(kind: str, now: Set[str]) -> int:
    """Freezes what is new, beside what is frozen; returns how many."""
    before = recorded(kind) if file_of(kind).exists() else set()
    FOLDER.mkdir(exist_ok=True)
    file_of(kind).write_text("\n".join(sorted(before | now)) + "\n", encoding="utf-8")
    return len(now - before)
