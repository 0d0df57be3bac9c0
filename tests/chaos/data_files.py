"""Which data files a table has to have: what its completed writes name, less what completed cleans and
rollbacks deleted. The timeline and its archive are listed and decoded here, without the product's code.

Compactions and replacing commits are writes, too: their base files are named nowhere else.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.chaos.archived import archived
from tests.chaos.timeline_watch import DATA_TIMELINE, Commit, decoded, decoded_bytes, written_files

_COMPLETED: Final = re.compile(r"\d{17}_\d{17}\.(\w+)")
_WRITES: Final = ("commit", "deltacommit", "replacecommit")
_DELETIONS: Final = ("clean", "rollback")
_DATA_FILE: Final = re.compile(r".*\.parquet|\..*\.log\.\d+_.*")


def files_there(table: Path) -> set[str]:
    """Paths of the base and log files below the table, outside `.hoodie`."""
    return {
        str(file.relative_to(table))
        for file in table.rglob("*")
        if ".hoodie" not in file.parts and file.is_file() and _DATA_FILE.fullmatch(file.name)
    }


def files_due(table: Path, commits: Iterable[Commit]) -> set[str]:
    """Paths of those that have to be there. `commits`: epochs that were seen."""
    named = {name for commit in commits for name in commit.files}
    named |= named_by_writes(table)
    for document in documents(table, _DELETIONS):
        named -= set(_deleted_files(document))
    return named


def named_by_writes(table: Path, timeline: str = DATA_TIMELINE) -> set[str]:
    """Paths that completed writes of a timeline name, those of compactions and replacecommits too."""
    return {name for document in documents(table, _WRITES, timeline) for name in written_files(document)}


def _deleted_files(document: Any) -> Iterator[str]:
    """Paths. Hudi's cleans name files without their folder, its rollbacks with the whole path."""
    for partition, deletions in (document.get("partitionMetadata") or {}).items():
        for name in deletions["successDeleteFiles"]:
            yield "/".join(filter(None, (partition, name.rpartition("/")[2])))


def documents(table: Path, actions: Collection[str], timeline: str = DATA_TIMELINE) -> Iterator[Any]:
    """What the files of completed instants with these actions hold, active or archived."""
    for file in (table / timeline).iterdir():
        name = _COMPLETED.fullmatch(file.name)
        if name and name[1] in actions:
            # One that is gone is in the archive by now.
            with contextlib.suppress(FileNotFoundError):
                yield decoded(file)
    yield from (decoded_bytes(row.content) for row in archived(table, timeline) if row.action in actions)
