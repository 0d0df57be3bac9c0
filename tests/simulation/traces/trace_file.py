"""A trace in a file: comments (``#``), events (``>``) and what each event led to (indented).

Comments and events are written by people; the indented lines are recorded. Recording keeps the former, line
by line, and replaces the latter.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.simulation.traces.file_words import with_short_names
from tests.simulation.traces.traced_world import DELETE_LOCK, REST, TracedWorld
from tests.simulation.world.script import Event, Script, Setup, parse
from tests.simulation.world.world import run_world

FOLDER: Final = Path(__file__).parent
_EVENT: Final = "> "


def trace_files() -> list[Path]:
    """All recorded ones, by name."""
    return sorted(FOLDER.glob("*.txt"))


def recorded_anew(text: str) -> str:
    """The same file with what its events lead to today. Raises ValueError when a guarantee does not hold."""
    if _events(text)[-1:] != [" ".join(REST)]:
        raise ValueError("the last event of a trace has to be '> rest'")
    world = TracedWorld(_script(text))
    outcome = run_world(world)
    if outcome.violations:
        raise ValueError(f"the script breaks a guarantee: {outcome.violations[0]}")
    blocks = [*world.blocks[:-1], (REST, [*world.blocks[-1][1], *_table(world)])]
    lines = []
    events = iter(blocks)
    for line in text.splitlines():
        if line.startswith(_EVENT) and not line.startswith(f"{_EVENT}setup"):
            _, told = next(events)
            lines += [line, *(f"    {words}" for words in told)]
        elif not line.startswith("    "):
            lines.append(line)
    return "\n".join(with_short_names(lines)) + "\n"


def _events(text: str) -> list[str]:
    return [line.removeprefix(_EVENT) for line in text.splitlines() if line.startswith(_EVENT)]


def _script(text: str) -> Script:
    setup, events = Setup(), list[Event]()
    for event in _events(text)[:-1]:
        if event == DELETE_LOCK:
            events.append((DELETE_LOCK,))
            continue
        read = parse(event)
        events += read.events
        setup = setup if read.events else read.setup
    return Script(setup, tuple(events))


def _table(world: TracedWorld) -> list[str]:
    """What the table holds at rest."""
    rows = world.judge.look().content.rows
    said = [f"{key} in {row.day}, ordering value {row.at}" for key, row in sorted(rows.items())]
    return [f"{'the table':13} has {', '.join(said) if said else 'no row'}"]
