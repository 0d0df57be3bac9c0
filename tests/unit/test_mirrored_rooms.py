"""Unit tests lie in folders that are called like the rooms that they test.

A folder of `tests/unit` is a package or a room of the product, or it stands in `NO_ROOM`: tests of tools,
of other tests, or of what no single room does.  A package without a folder stands in `TESTED_ELSEWHERE`,
with the place of its tests.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "tests" / "unit"

NO_ROOM = {
    "bench": "bench/",
    "chaos": "the kill campaign's own parts",
    "deploy": "manifests and images",
    "faults": "links that lose and double requests",
    "frozen_names": "every package publishes names",
    "fuzz": "mutated files for every reader",
    "observability": "metrics, alerts and traces of all services",
    "simulation": "the simulation's own parts",
    "soak": "the soak's own parts",
    "tools": "tools/",
}
TESTED_ELSEWHERE = {
    "errors": "by every package that raises them",
    "redaction": "cli/test_token.py, stream_runtime/test_logging_and_metrics.py",
    "table_status": "page, commit_coordinator/status, frozen_names",
}


def folders(parent: Path) -> set[str]:
    """Paths below `parent` of the folders that hold Python modules."""
    modules = (file for file in parent.rglob("*.py") if file.parent != parent)
    return {str(file.parent.relative_to(parent)) for file in modules}


def rooms() -> set[str]:
    return folders(ROOT / "libs" / "tidemark") | folders(ROOT / "services" / "tidemark")


def test_a_folder_of_tests_is_called_like_the_room_that_it_tests() -> None:
    unknown = {folder for folder in folders(UNIT) if folder.split("/")[0] not in NO_ROOM}
    assert unknown - rooms() == set()


def test_each_package_has_a_folder_of_tests_or_says_where_they_are() -> None:
    packages = {room.split("/")[0] for room in rooms()}
    tested = {folder.split("/")[0] for folder in folders(UNIT)}
    assert packages - tested == set(TESTED_ELSEWHERE)
    assert tested - packages == set(NO_ROOM)
