"""`make docs`: the documentation site in build/site, from the repository's Markdown.

Everything that a page needs is in the folder: it can be read from disk, and nothing is asked of other hosts.
The build fails on any warning, on a link that leads nowhere, and on anything that a browser would fetch from
elsewhere.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.docs_pages import HOME, assemble, in_groups, title_of  # noqa: E402

_LOADED: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_PROBLEMS_SHOWN: Final = 20


def site_settings(pages: list[str], sources: Path, target: Path) -> dict[str, Any]:
    """MkDocs' configuration. Pages without a place in the navigation are an error to it, so all have one."""
    return {
        "site_name": "Tidemark",
        "docs_dir": str(sources),
        "site_dir": str(target),
        "use_directory_urls": False,
        "strict": True,
        "theme": {
            "name": "mkdocs",
            # The theme would fetch it from another host.
            "highlightjs": False,
            "color_mode": "auto",
            "user_color_mode_toggle": True,
            "navigation_depth": 3,
        },
        "plugins": ["search"],
        # Fences within list items, and lists indented as CommonMark has them.
        "markdown_extensions": [
            "pymdownx.superfences",
            {"pymdownx.highlight": {"use_pygments": False}},
            "tools.narrow_lists",
            {"toc": {"permalink": True}},
        ],
        "validation": {
            "omitted_files": "info",
            "absolute_links": "warn",
            "unrecognized_links": "warn",
            "anchors": "warn",
        },
        "nav": list(_navigation(pages, sources)),
    }


def _navigation(pages: list[str], sources: Path) -> Iterator[dict[str, Any]]:
    def titled(page: str) -> dict[str, Any]:
        return {title_of((sources / page).read_text(encoding="utf-8"), Path(page).stem): page}

    yield {"Start": HOME}
    for group, found in in_groups(pages).items():
        yield {group: [titled(page) for page in found]}


class _References(HTMLParser):
    """What a page loads, where it leads, and what can be led to in it."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if (name := given.get("id") or given.get("name")) is not None:
            self.anchors.add(name)
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))
        loads = _LOADED.get(tag)
        if loads is not None and given.get(loads) and given.get("rel") != "canonical":
            self.loaded.append(str(given[loads]))


def problems(site: Path) -> list[str]:
    """Links of the built pages that lead nowhere, and what would be fetched from another host."""
    read: dict[Path, _References] = {}
    for page in sorted(site.rglob("*.html")):
        read[page] = _References()
        read[page].feed(page.read_text(encoding="utf-8"))
    found = []
    for page, references in read.items():
        name = page.relative_to(site)
        found += [f"{name} loads {each}" for each in references.loaded if urlsplit(each).netloc]
        for link in (*references.links, *(each for each in references.loaded if not urlsplit(each).netloc)):
            if not _leads_somewhere(page, link, read):
                found.append(f"{name} links to {link}")
    for sheet in site.rglob("*.css"):
        if any(each in sheet.read_text(encoding="utf-8") for each in ("url(http", "url(//", "@import url(")):
            found.append(f"{sheet.relative_to(site)} loads from another host")
    return found


def _leads_somewhere(page: Path, link: str, read: dict[Path, _References]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return True
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    if not target.exists():
        return page.name == "404.html"
    fragment = unquote(parts.fragment)
    return not fragment or target not in read or fragment in read[target].anchors


def build_site(folder: Path, site: Path) -> list[str]:
    """Builds into `site`, with `folder` for what is in between; returns what is wrong with it.

    Raises MkDocs' own error after logging why.
    """
    sources = folder / "pages"
    pages = assemble(ROOT, sources)
    settings = folder / "mkdocs.yml"
    content = yaml.safe_dump(site_settings(pages, sources, site), sort_keys=False)
    settings.write_text(content, encoding="utf-8")
    build(load_config(str(settings)))
    return problems(site)


def main() -> int:
    """Exit code 1 when the site cannot be built, or something is wrong with it."""
    logging.basicConfig(level=logging.WARNING, format="docs: %(message)s")
    folder, site = ROOT / "build" / "docs", ROOT / "build" / "site"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(site, ignore_errors=True)
    wrong = build_site(folder, site)
    for each in wrong[:_PROBLEMS_SHOWN]:
        sys.stderr.write(f"docs: {each}\n")
    sys.stderr.write(f"docs: {site / 'index.html'}; {len(wrong)} problems\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
