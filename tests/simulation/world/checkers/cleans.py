"""What completed cleans say they deleted, and what of it the `files` partition has to list again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.timelines import DATA_TIMELINE, Timeline

Read = Callable[[str], bytes]


def cleans_of(
    names: Iterable[str], read: Read, history: Iterable[Mapping[str, Any]]
) -> dict[str, frozenset[str]]:
    """Requested time of each completed clean -> the files that it says it deleted. ``names``: of the files of
    the data timeline; ``history``: the rows of what is archived.
    """
    done = [name for name in names if "_" in name and name.endswith(".clean")]
    found = {name.partition("_")[0]: read(f"{DATA_TIMELINE}/{name}") for name in done}
    found |= {row["instantTime"]: row["metadata"] for row in history if row["action"] == "clean"}
    return {instant: _deleted(content) for instant, content in found.items()}


def cleaned_files(cleans: Mapping[str, Iterable[str]], metadata: Timeline) -> tuple[set[str], set[str]]:
    """(files that are off the list of files, files that are on it again). A restore takes the metadata table
    back behind a clean, and lists anew what is there; the clean stays on the data timeline.
    """
    off, on = set[str](), set[str]()
    for instant, paths in cleans.items():
        (off if metadata.counts(instant) else on).update(paths)
    return off, on - off


def listing_fault(
    listed: Mapping[str, set[str]],
    paths: Iterable[str],
    cleans: Mapping[str, Iterable[str]],
    metadata: Timeline,
) -> str | None:
    """What is wrong with the list of files (partition -> names), where these data files are there and
    committed. A clean of Tidemark's deletes after its commit.
    """
    there: dict[str, set[str]] = {}
    cleaned, _ = cleaned_files(cleans, metadata)
    for path in paths:
        folder, _, name = path.rpartition("/")
        if path not in cleaned:
            there.setdefault(folder, set()).add(name)
    found = {folder: names for folder, names in listed.items() if names}
    return None if found == there else f"the files partition lists {found}, but there is {there}"


def _deleted(content: bytes) -> frozenset[str]:
    partitions = decode.avro_document(content)["partitionMetadata"]
    found = (f"{path}/{name}" for path, part in partitions.items() for name in part["successDeleteFiles"])
    return frozenset(path.lstrip("/") for path in found)
