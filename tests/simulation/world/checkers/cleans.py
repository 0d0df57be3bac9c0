"""What completed cleans say they deleted, and what of it the `files` partition has to list again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tests.hudi_rules.timeline import parse_name
from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.timelines import DATA_TIMELINE, Timeline

Read = Callable[[str], bytes]


class Clean(NamedTuple):
    """A completed clean of the table; ``files``: what it says it deleted."""

    completion: str
    files: frozenset[str]


Cleans = Mapping[str, Clean]
"""By requested time."""


def cleans_of(names: Iterable[str], read: Read, history: Iterable[Mapping[str, Any]]) -> dict[str, Clean]:
    """``names``: of the files of the data timeline; ``history``: the rows of what is archived."""
    found: dict[str, Clean] = {}
    for row in history:
        if row["action"] == "clean":
            found[row["instantTime"]] = Clean(row["completionTime"], _deleted(row["metadata"]))
    for name in names:
        parts = parse_name(name)
        if parts is not None and parts[1] is not None and parts[2] == "clean":
            found[parts[0]] = Clean(parts[1], _deleted(read(f"{DATA_TIMELINE}/{name}")))
    return found


def cleaned_files(cleans: Cleans, data: Timeline, metadata: Timeline) -> tuple[set[str], set[str]]:
    """(files that are off the list of files, those that may be on it again). A restore lists anew what is
    there, and may take the metadata table back behind a clean; the clean stays on the data timeline.
    """
    off, on = set[str](), set[str]()
    restored = max((each.requested for each in data.hudi.completed("restore")), default="")
    for instant, clean in cleans.items():
        is_off = metadata.counts(instant) and clean.completion > restored
        (off if is_off else on).update(clean.files)
    return off, on - off


def listing_fault(
    listed: Mapping[str, set[str]],
    partitions: set[str],
    paths: Iterable[str],
    cleaned: set[str],
) -> str | None:
    """What is wrong with the list of files (partition -> names), where these data files are there and
    committed; or with the list of ``partitions``. A clean of Tidemark's deletes after its commit:
    ``cleaned``.
    """
    there: dict[str, set[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if path not in cleaned:
            there.setdefault(folder, set()).add(name)
    found = {folder: names for folder, names in listed.items() if names}
    if found != there:
        return f"the files partition lists {found}, but there is {there}"
    unknown = there.keys() - partitions
    return f"the list of partitions has {partitions}, but not {unknown}" if unknown else None


def _deleted(content: bytes) -> frozenset[str]:
    partitions = decode.avro_document(content)["partitionMetadata"]
    found = (f"{path}/{name}" for path, part in partitions.items() for name in part["successDeleteFiles"])
    return frozenset(path.lstrip("/") for path in found)
