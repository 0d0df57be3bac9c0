"""Which data files a table has to have: what its completed writes name, less what completed cleans and
rollbacks deleted. The timeline is listed and decoded here, without the product's code.

Compactions and replacing commits are writes, too: their base files are named nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.chaos.timeline_watch import DATA_TIMELINE, Commit, decoded, written_files

_WRITE: Final = re.compile(r"\d{17}_\d{17}\.(commit|deltacommit|replacecommit)")
_DELETION: Final = re.compile(r"\d{17}_\d{17}\.(clean|rollback)")
_DATA_FILE: Final = re.compile(r".*\.parquet|\..*\.log\.\d+_.*")


def files_there(table: Path) -> set[str]:
    """Paths of the base and log files below the table, outside `.hoodie`."""
    return {
        str(file.relative_to(table))
        for file in table.rglob("*")
        if ".hoodie" not in file.parts and file.is_file() and _DATA_FILE.fullmatch(file.name)
    }


def files_due(table: Path, commits: Iterable[Commit]) -> set[str]:
    """Paths of those that have to be there. `commits`: epochs that were seen, also such as are archived."""
    named = {name for commit in commits for name in commit.files}
    named |= named_by_writes(table)
    for document in _documents(table, _DELETION):
        named -= set(_deleted_files(document))
    return named


def named_by_writes(table: Path, timeline: str = DATA_TIMELINE) -> set[str]:
    """Paths that completed writes of a timeline name, those of compactions and replacecommits too."""
    return {name for document in _documents(table, _WRITE, timeline) for name in written_files(document)}


def _deleted_files(document: Any) -> Iterator[str]:
    """Paths. Hudi's cleans name files without their folder, its rollbacks with the whole path."""
    for partition, deletions in (document.get("partitionMetadata") or {}).items():
        for name in deletions["successDeleteFiles"]:
            yield "/".join(filter(None, (partition, name.rpartition("/")[2])))


def _documents(table: Path, names: re.Pattern[str], timeline: str = DATA_TIMELINE) -> Iterator[Any]:
    for file in (table / timeline).iterdir():
        if names.fullmatch(file.name):
            yield decoded(file)
