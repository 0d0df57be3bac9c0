"""Files of a timeline, and what the writer of an instant leaves beside them: its heartbeat and its markers,
as Hudi names them.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any, Final

from tests.hudi_rules.table import DATA, METADATA
from tests.hudi_rules.timeline import DONE_AS, parse_name

__all__ = ["DATA", "METADATA"]

LOCK: Final = ".hoodie/lock"
_MARKERS: Final = ".hoodie/.temp"
_INFIX: Final = ".marker."
_LIST: Final = "MARKERS"
_LIST_TYPE: Final = "MARKERS.type"


def request(storage: Any, instant: str, action: str, plan: bytes = b"", root: str = DATA) -> None:
    """The requested file, with the plan of what has one."""
    storage.create(f"{root}/{instant}.{action}.requested", plan)


def start(storage: Any, instant: str, action: str, content: bytes = b"", root: str = DATA) -> None:
    """The inflight file; a commit's has no word for it."""
    word = "" if action == "commit" else f".{action}"
    storage.create(f"{root}/{instant}{word}.inflight", content)


def complete(
    storage: Any, instant: str, action: str, completion: str, content: bytes, root: str = DATA
) -> None:
    """The completed file, by the word that the action ends with."""
    storage.create(f"{root}/{instant}_{completion}.{DONE_AS.get(action, action)}", content)


def delete(storage: Any, instant: str, root: str = DATA, keeps_plan: bool = False) -> None:
    """Removes an instant's files, savepoints apart: the inflight one, the requested one unless the plan is
    kept, the completed one last.
    """
    order = {"inflight": 0, "requested": 1, "completed": 2}
    found = []
    for name in storage.file_names(root):
        parts = parse_name(name)
        if parts is None or parts[0] != instant or parts[2] == "savepoint":
            continue
        if not (keeps_plan and parts[3] == "requested"):
            found.append((order[parts[3]], name))
    for _, name in sorted(found):
        storage.delete(f"{root}/{name}")
    storage.sync_dir(root)


def build_instant(active: Collection[str]) -> str:
    """The instant at which an index is built: the first `0000…N` that is not on the metadata table's active
    timeline, also where the archive has it. The timeline begins there from then on, so a base file of an
    archived compaction counts no more. (`generateUniqueInstantTime` in `HoodieBackedTableMetadataWriter`, and
    `containsOrBeforeTimelineStarts`, which `HoodieFileGroup.isFileSliceCommitted` asks; Hudi 1.2.0.)
    """
    return next(each for number in count() if (each := f"{number:017d}") not in active)


# ---------------------------------------------------------------- lock


def remove_lock(storage: Any) -> None:
    """Removes the lock of an engine that died, unless somebody else did and we hold the lock by now."""
    info = storage.memory.stat(LOCK)
    if info is not None and not info.is_dir and not storage.memory.read(LOCK):
        storage.delete(LOCK)


# ---------------------------------------------------------------- heartbeats


def heartbeat(instant: str) -> str:
    """Where the heartbeat of an instant lies."""
    return f".hoodie/.heartbeat/{instant}"


def beat(storage: Any, instant: str) -> None:
    """Its writer lives."""
    storage.touch(heartbeat(instant))


def stop(storage: Any, instant: str) -> None:
    """Its writer has ended, or died."""
    storage.delete(heartbeat(instant))


# ---------------------------------------------------------------- markers


def mark(storage: Any, instant: str, path: str) -> None:
    """Announces a data file."""
    storage.create(f"{_MARKERS}/{instant}/{path}{_INFIX}CREATE", b"")


def marked(storage: Any, instant: str) -> dict[str, list[str]]:
    """Partition path -> the data files that an instant's markers name, of both forms, whether or not they
    are there: a marker for each, or lists of them as a timeline server writes them.
    """
    folder, lines = f"{_MARKERS}/{instant}/", set[str]()
    for path in storage.paths():
        name = path.removeprefix(folder)
        if name in (path, _LIST_TYPE):
            continue
        if name.startswith(_LIST):
            lines |= set(storage.memory.read(path).decode().splitlines())
        else:
            lines.add(name)
    found: dict[str, list[str]] = {}
    for line in sorted(filter(None, lines)):
        partition, _, name = line.partition(_INFIX)[0].rpartition("/")
        found.setdefault(partition, []).append(name)
    return found


def unmark(storage: Any, instant: str) -> None:
    """The markers go."""
    storage.delete_tree(f"{_MARKERS}/{instant}")
