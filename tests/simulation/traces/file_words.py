"""What a file that appeared or vanished means, as a sentence without its subject; and short names of times
and file groups, so that a trace says the same whatever the clock and the ids are.
"""

from __future__ import annotations

import re
from typing import Final

from tests.simulation.world.checkers.timelines import DATA_TIMELINE, METADATA_TIMELINE

_LOCK: Final = ".hoodie/lock"
_HEARTBEATS: Final = ".hoodie/.heartbeat/"
DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
_METADATA: Final = ".hoodie/metadata/"
_BOOTSTRAP: Final = "0000000000000"
"""Instants of a metadata table's creation begin so."""
_STATES: Final = {"requested": "requests", "inflight": "begins"}
_TIME: Final = re.compile(r"(?<!\d)2\d{16}(?!\d)")
_GROUP: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}-\d+(?=_)")
_WRITE_TOKEN: Final = re.compile(r"_\d+-\d+-\d+")


def file_words(path: str, is_there: bool) -> str:
    """ "" for what is of no interest here: staging, markers, documents beside the table."""
    if path == _LOCK:
        return "takes the table's lock" if is_there else "gives the table's lock back"
    if path == DEFINITIONS:
        return "has created the table, and its metadata table with the record index"
    if _BOOTSTRAP in path:
        return ""
    if path.startswith(DATA_TIMELINE):
        return _instant(path.rpartition("/")[2], "on the data timeline", is_there)
    if path.startswith(METADATA_TIMELINE):
        return _instant(path.rpartition("/")[2], "on the metadata table's timeline", is_there)
    if path.startswith(_HEARTBEATS):
        return "" if is_there else f"ends the heartbeat of {path.rpartition('/')[2]}"
    if path.startswith(_METADATA):
        return _file(path.removeprefix(_METADATA), "in the metadata table", is_there)
    return "" if path.startswith(".hoodie") else _file(path, "of the data table", is_there)


def _instant(name: str, where: str, is_there: bool) -> str:
    instant, _, rest = name.partition(".")
    requested, _, completed = instant.partition("_")
    action, _, state = rest.partition(".")
    if not is_there:
        return f"deletes {name} {where}"
    if not completed:
        return f"{_STATES.get(state or action, 'writes')} {requested} {where}: {name}"
    return f"completes {requested} at {completed} {where}: {name}"


def _file(path: str, where: str, is_there: bool) -> str:
    name = path.rpartition("/")[2]
    if ".log." not in name and not name.endswith((".parquet", ".hfile")):
        return ""
    kind = "log file" if ".log." in name else "base file"
    return f"{'writes' if is_there else 'deletes'} a {kind} {where}: {path}"


def with_short_names(lines: list[str]) -> list[str]:
    """Times become t1, t2, … in their order, file groups g1, g2, … as they come, write tokens go."""
    text = "\n".join(lines)
    for number, time in enumerate(sorted(set(_TIME.findall(text))), 1):
        text = text.replace(time, f"t{number}")
    for number, group in enumerate(dict.fromkeys(_GROUP.findall(text)), 1):
        text = text.replace(group, f"g{number}")
    return _WRITE_TOKEN.sub("", text).split("\n")
