"""What has to be gone, and what has to be there, when everything has come to rest (G5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.table import parse_file
from tests.simulation.world.checkers.timelines import DATA_TIMELINE, Timeline

Read = Callable[[str], bytes]


def traces_of(
    paths: list[str],
    timeline: Timeline,
    rolled_back: frozenset[str],
    read: Read,
    cleaned: tuple[set[str], set[str]],
    deletions_lost: bool,
) -> Iterator[str]:
    """What is left of attempts, pending, nobody's, or missing. ``paths``: all files of the table;
    ``cleaned``: as `cleans.cleaned_files`.
    """
    traces = (
        (".hoodie/lock",) if deletions_lost else (".hoodie/lock", ".hoodie/.heartbeat/", ".hoodie/.temp/")
    )
    left = [path for path in paths if path.startswith(traces)]
    if left:
        yield f"left behind: {left}"
    if timeline.pending:
        yield f"pending at rest: {sorted(timeline.pending)}"
    off, on_again = cleaned
    # A restore lists again what was not deleted yet, and only that.
    named = _named_files(paths, read) - off - on_again
    first = timeline.first or ""
    data = [file for p in paths if not p.startswith(".hoodie") and (file := parse_file(p)) is not None]
    # What names older files is archived; if one of them were an orphan, its rows would have been seen.
    files = {file.path for file in data if file.instant >= first or file.instant in rolled_back}
    files -= on_again
    named = {path for path in named if path in files or path not in paths}
    if files != named:
        yield f"orphans {sorted(files - named)}, missing {sorted(named - files)}"


def _named_files(paths: list[str], read: Read) -> set[str]:
    """The data files that completed instants say they made."""
    made: set[str] = set()
    timeline = [path.rpartition("/")[2] for path in paths if path.rpartition("/")[0] == DATA_TIMELINE]
    for name in timeline:
        if "_" in name and name.endswith("commit"):
            stats = decode.avro_document(read(f"{DATA_TIMELINE}/{name}"))["partitionToWriteStats"] or {}
            made |= {stat["path"] for each in stats.values() for stat in each}
    return made
