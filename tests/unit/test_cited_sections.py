"""Citations of the pages on Hudi's files name sections that are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "libs" / "tidemark" / "hudi_format"
_NUMBER = r"\d+(?:\.\d+)*"
# Between the words of a citation: a line may end there, and the next one begin with the sign of a comment.
_GAP = r"(?:\s+(?:(?:#|//)\s+)?)"
_NUMBERS = rf"sections?{_GAP}(?P<numbers>{_NUMBER}(?:(?:,|,?{_GAP}and|,?{_GAP}to){_GAP}{_NUMBER})*)"
CITATION = re.compile(
    rf"(?<![A-Z_])(?P<page>FORMAT|METADATA_TABLE|TABLE_SERVICES)\.md[`\])]*(?:\([^)]*\))?,?{_GAP}{_NUMBERS}"
)
WITHIN = re.compile(_NUMBERS)
HEADING = re.compile(rf"^#{{2,}} ({_NUMBER})\.? ", re.MULTILINE)
FORMAT = "FORMAT.md"


def citations(text: str) -> list[tuple[str, str]]:
    """(page, section number) of every citation."""
    return [
        (f"{found['page']}.md", number)
        for found in CITATION.finditer(text)
        for number in re.findall(_NUMBER, found["numbers"])
    ]


def sections(page: str) -> list[str]:
    """The numbers of a page's headings, in its order."""
    return HEADING.findall(page)


def lead_nowhere(text: str, known: dict[str, set[str]]) -> list[str]:
    """The citations of a section, or of a page, that is not there. `known`: page -> its numbers."""
    return [f"{page}, {number}" for page, number in citations(text) if number not in known.get(page, set())]


def pages() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(PAGES.glob("[FMT]*.md"))}


def tracked(*patterns: str) -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z", *patterns],
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_every_cited_section_is_there() -> None:
    known = {name: set(sections(page)) for name, page in pages().items()}
    wrong, right = {}, 0
    for path in tracked("*.py", "*.md", "*.proto"):
        text = path.read_text(encoding="utf-8")
        right += len(citations(text))
        if found := lead_nowhere(text, known):
            wrong[path.relative_to(ROOT).as_posix()] = found
    assert wrong == {}
    assert right > 0


def test_every_section_that_a_page_names_of_itself_is_there() -> None:
    wrong = {}
    for name, page in pages().items():
        own = WITHIN.findall(CITATION.sub("", page))
        cited = {number for numbers in own for number in re.findall(_NUMBER, numbers)}
        if missing := cited - set(sections(page)):
            wrong[name] = sorted(missing)
    assert wrong == {}


def test_every_section_has_a_number_of_its_own_that_follows_the_one_before() -> None:
    for name, page in pages().items():
        numbers = [tuple(map(int, number.split("."))) for number in sections(page)]
        assert numbers == sorted(set(numbers)), name
        unnumbered = [
            line for line in re.findall(r"^#{2,} .*", page, re.MULTILINE) if not HEADING.match(line)
        ]
        assert unnumbered == [], name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("({}, section 3.2)", ["3.2"]),
        ("({}, section\n    3.2). Then", ["3.2"]),
        ("# as {},\n# section 3. Then", ["3"]),
        ("// as {},\n// section 3.1", ["3.1"]),
        ("`{}`, sections 4.1 and 5.1", ["4.1", "5.1"]),
        ("{}, sections 9.4,\n10.1 and 10.2.", ["9.4", "10.1", "10.2"]),
        ("[{}](libs/x.md), section 7", ["7"]),
        ("{} has section 7", []),
        ("THE_OTHER_{}, section 7", []),
    ],
)
def test_a_citation_is_found_however_its_lines_are_broken(text: str, found: list[str]) -> None:
    assert citations(text.format(FORMAT)) == [(FORMAT, number) for number in found]


def test_a_planted_citation_of_a_section_that_is_not_there_fails() -> None:
    known = {name: set(sections(page)) for name, page in pages().items()}
    planted = f"({FORMAT}, section 3.1) and ({FORMAT},\nsections 3.99 and 99)"
    assert lead_nowhere(planted, known) == [f"{FORMAT}, 3.99", f"{FORMAT}, 99"]
    assert lead_nowhere(planted, {}) == [f"{FORMAT}, 3.1", f"{FORMAT}, 3.99", f"{FORMAT}, 99"]


def test_headings_are_sections_and_their_dots_do_not_count() -> None:
    assert sections("# Page\n## 1. One\ntext 2. no\n### 1.2 Two\n## 10. Ten\n## Without\n") == [
        "1",
        "1.2",
        "10",
    ]
