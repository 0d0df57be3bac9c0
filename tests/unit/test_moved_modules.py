"""docs/moved-modules.md: each place that it names is there, and each product module that moved has a row."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "moved-modules.md"
BEFORE = re.compile(r"\"Before\" is commit `(\w+)`")
ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)
ROW_OF_NAMES = re.compile(r"^\| `([^`]+\.py)` \| [^|]+ \| (.+) \|$", re.MULTILINE)
PLACE = re.compile(r"`((?:libs|services|testing)/[\w/]+\.py)`")


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text("utf-8")


def modules(page: str) -> list[tuple[str, str]]:
    """(path before, where its content is now), of the first table."""
    return ROW.findall(page.partition("\n## ")[0])


def git(*arguments: str) -> str | None:
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def test_what_a_row_names_is_there_now(page: str) -> None:
    rows = modules(page) + ROW_OF_NAMES.findall(page)
    places = {before: PLACE.findall(now) for before, now in rows}
    assert [before for before, now in places.items() if not now] == []
    missing = {place for now in places.values() for place in now if not (ROOT / place).is_file()}
    assert missing == set()


def test_the_page_says_how_many_modules_it_has_and_has_each_once(page: str) -> None:
    before = [path for path, _ in modules(page)]
    assert f"the {len(before)} product modules" in page
    assert len(set(before)) == len(before) > 500


def test_the_rows_are_the_product_modules_of_the_commit_that_is_named(page: str) -> None:
    named = BEFORE.search(page)
    assert named is not None
    listed = git("ls-tree", "-r", "--name-only", named[1], "libs", "services")
    if listed is None:
        pytest.skip("this checkout does not have that commit")
    there = {path for path in listed.splitlines() if path.endswith(".py")}
    assert {path for path, _ in modules(page)} == there
    assert {path for path, _ in ROW_OF_NAMES.findall(page)} <= there
