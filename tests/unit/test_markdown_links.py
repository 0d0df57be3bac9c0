"""Links in the repository's Markdown lead somewhere: files, folders, and headings within pages."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tools.build_docs import build_site, problems
from tools.docs_pages import in_groups, links_of, notebook_page
from tools.narrow_lists import NarrowLists

ROOT = Path(__file__).resolve().parents[2]
HEADING = re.compile(r"^#{1,6} (.+?)\s*#*$", re.MULTILINE)


def tracked(pattern: str) -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z", pattern],
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def anchors(markdown: str) -> set[str]:
    """As GitHub and the site make them of headings."""
    found = set()
    for heading in HEADING.findall(markdown):
        plain = re.sub(r"[`*_]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


def lead_nowhere(page: Path, markdown: str) -> list[str]:
    """Relative links without a target."""
    wrong = []
    for link in links_of(markdown):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = page.parent / path if path else page
        inside = ROOT in target.resolve().parents or target.resolve() == ROOT
        if not inside or not target.exists() or not _has(target, anchor):
            wrong.append(link)
    return wrong


def _has(target: Path, anchor: str) -> bool:
    return not anchor or target.suffix != ".md" or anchor in anchors(target.read_text("utf-8"))


def test_every_relative_link_leads_somewhere():
    wrong = {}
    for page in tracked("*.md"):
        if found := lead_nowhere(page, page.read_text(encoding="utf-8")):
            wrong[page.relative_to(ROOT).as_posix()] = found
    for notebook in tracked("*.ipynb"):
        if found := lead_nowhere(notebook, notebook_page(json.loads(notebook.read_text("utf-8")))):
            wrong[notebook.relative_to(ROOT).as_posix()] = found
    assert wrong == {}


def test_links_in_code_are_no_links(tmp_path: Path):
    page = tmp_path / "page.md"
    text = "[a](gone.md) `[b](code.md)`\n```\n[c](fence.md)\n```\n[d](#gone) [e](https://x.y/z)\n"
    page.write_text(text)
    assert list(links_of(text)) == ["gone.md", "#gone", "https://x.y/z"]
    assert lead_nowhere(page, text) == ["gone.md", "#gone"]


def test_anchors_are_those_of_headings():
    text = "# A `code` heading\n## What if step N fails?\n"
    assert anchors(text) == {"a-code-heading", "what-if-step-n-fails"}


def test_list_items_keep_what_is_indented_by_their_own_width():
    from markdown import markdown

    text = "1. one\n\n   more of one\n2. two\n   - inner\n     of inner\n\nafter\n"
    html = markdown(text, extensions=[NarrowLists()])
    assert html.count("<ol>") == 1
    assert "<p>more of one</p>" in html
    assert re.search(r"<p>two</p>\s*<ul>\s*<li>inner\s+of inner</li>\s*</ul>\s*</li>", html)
    assert html.endswith("<p>after</p>")


def test_notebook_page_shows_text_code_and_what_was_printed():
    cells = [
        {"cell_type": "markdown", "source": ["# T\n", "text"]},
        {
            "cell_type": "code",
            "source": ["1 + 1"],
            "outputs": [{"output_type": "stream", "text": ["2\n"]}],
        },
    ]
    assert notebook_page({"cells": cells}) == "# T\ntext\n\n```python\n1 + 1\n```\n\n```text\n2\n```\n"


def test_a_new_page_has_its_place_in_the_navigation():
    pages = ["README.md", "ARCHITECTURE.md", "docs/adr/0009-new.md", "docs/brand-new.md"]
    assert in_groups(pages) == {
        "Operate": ["docs/brand-new.md"],
        "Inside": ["ARCHITECTURE.md"],
        "Decisions": ["docs/adr/0009-new.md"],
    }


def test_site_is_built_without_a_warning_and_asks_no_other_host(tmp_path: Path):
    site = tmp_path / "site"
    assert build_site(tmp_path / "between", site) == []
    pages = {each.relative_to(site).as_posix() for each in site.rglob("*.html")}
    assert {"index.html", "ARCHITECTURE.html", "docs/commands.html", "docs/adr/0001-protocol.html"} <= pages
    assert "tidemark doctor" in (site / "docs" / "commands.html").read_text()
    assert "limits.record_bytes" in (site / "docs" / "configuration.html").read_text()


def test_what_is_wrong_with_a_site_is_named(tmp_path: Path):
    page = '<link href="https://fonts.example/x.css"><a href="gone.html">x</a><a href="#no">y</a><p id="yes">'
    (tmp_path / "index.html").write_text(f'{page}<a href="#yes">z</a><a href="https://other.example/">o</a>')
    assert problems(tmp_path) == [
        "index.html loads https://fonts.example/x.css",
        "index.html links to gone.html",
        "index.html links to #no",
    ]
