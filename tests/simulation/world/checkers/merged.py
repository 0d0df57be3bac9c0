"""Files of the table and of its metadata table: which count, and which of them are merged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.hudi_rules.slices import parse_data_file, read_slice
from tests.simulation.world.checkers.timelines import Place, Timeline

_BOOTSTRAP: Final = "00000000000000"


class DataFile(NamedTuple):
    """A base file or a log file of the table or of its metadata table."""

    path: str
    file_id: str
    instant: str
    is_log: bool


Merged = tuple[tuple[Place, tuple[DataFile, ...]], ...]
"""Per file group what a reader merges: the base file, then the log files in their order."""


def parse_file(path: str) -> DataFile | None:
    """What a path stands for; None for what is no data file."""
    found = parse_data_file(path.rpartition("/")[2])
    return None if found is None else DataFile(path, found.file_id, found.instant, found.is_log)


def counts_in_metadata(instant: str, data: Timeline, metadata: Timeline) -> bool:
    """Whether log files of the metadata table that are of this instant count."""
    if instant.startswith(_BOOTSTRAP):
        return True
    committed = data.counts(instant) or instant in data.others
    # A restore ends with a deltacommit that the data timeline never has.
    committed = committed or any(
        each.requested < instant < str(each.completion) for each in data.hudi.completed("restore")
    )
    return metadata.counts(instant) and committed


def merged_files(files: Iterable[DataFile], timeline: Timeline) -> Merged:
    groups: dict[Place, dict[str, DataFile]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        place = (folder.removeprefix(".hoodie/metadata/"), file.file_id)
        groups.setdefault(place, {})[name] = file
    found = []
    for place, by_name in groups.items():
        if place in timeline.replaced:
            continue
        shown = read_slice(by_name, timeline.hudi, timeline.scheduled.get(place))
        if shown is not None:
            base, logs = shown
            names = [*([base] if base is not None else []), *logs]
            found.append((place, tuple(by_name[name] for name in names)))
    return tuple(found)
