"""The pages of the documentation site: the repository's own Markdown, and what is made from the code.

Pages keep their places relative to each other, so links that work in the repository work on the site. What a
page links to and is no page (a source file, a picture) is taken along; a folder becomes a list of its pages.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from tidemark.cli.main import build_parser
from tidemark.config.reference import known_keys

LINK: Final = re.compile(r"(?<!\\)\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_FENCE: Final = re.compile(r"^\s*(```|~~~)")
_CODE: Final = re.compile(r"`[^`]*`")
_OUTPUT_LINES_MAX: Final = 60
HOME: Final = "README.md"
BEGIN: Final = (
    "docs/first-hour.md",
    "docs/notebooks/first-hour.md",
    "docs/demo.md",
    "docs/inputs.md",
    "docs/configuration.md",
    "docs/commands.md",
)
INSIDE: Final = (
    "ARCHITECTURE.md",
    "services/tidemark/commit_coordinator/DESIGN.md",
    "services/tidemark/index_assigner/DESIGN.md",
    "libs/tidemark/hudi_format/DESIGN.md",
    "docs/guarantees.md",
    "docs/failure-walkthrough.md",
    "docs/changes.md",
    "docs/kafka-behaviour.md",
    "docs/lifecycles.md",
    "docs/traces.md",
    "docs/simulation.md",
    "docs/chaos.md",
    "docs/soak.md",
    "docs/benchmarks.md",
    "CONTRIBUTING.md",
    "docs/adding.md",
    "docs/moved-modules.md",
    "CHANGELOG.md",
)
DECISIONS: Final = "docs/adr/"
FOLDERS: Final = ("*.md", "docs/**/*.md", "libs/tidemark/*/DESIGN.md", "services/tidemark/*/DESIGN.md")


def links_of(markdown: str) -> Iterator[str]:
    """The targets of all links and pictures, code aside."""
    fenced = False
    for line in markdown.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield from LINK.findall(_CODE.sub("", line))


def title_of(markdown: str, otherwise: str) -> str:
    """The first heading."""
    found = re.search(r"^# (.+)$", markdown, re.MULTILINE)
    return found[1].strip() if found else otherwise


def assemble(root: Path, target: Path) -> list[str]:
    """Fills an empty folder; returns the pages' paths."""
    pages = {path.relative_to(root).as_posix() for pattern in FOLDERS for path in root.glob(pattern)}
    for page in pages:
        _copy(root / page, target / page)
    made = {
        "docs/configuration.md": configuration_page(),
        "docs/commands.md": commands_page(),
        **{
            path.relative_to(root).with_suffix(".md").as_posix(): notebook_page(json.loads(path.read_text()))
            for path in root.glob("docs/notebooks/*.ipynb")
        },
    }
    for page, text in made.items():
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        (target / page).write_text(text, encoding="utf-8")
    for page in sorted(pages):
        for link in links_of((target / page).read_text(encoding="utf-8")):
            _take_along(root, target, page, link)
    return sorted({*pages, *made})


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _take_along(root: Path, target: Path, page: str, link: str) -> None:
    path = link.partition("#")[0]
    if not path or ":" in path:
        return
    source = (root / page).parent / path
    there = target / source.resolve().relative_to(root.resolve())
    if source.is_dir():
        index = there / "index.md"
        there.mkdir(parents=True, exist_ok=True)
        if not index.exists():
            index.write_text(_folder_page(source), encoding="utf-8")
        # On the site a folder is reached by its page.
        _replace_link(target / page, link, f"{path.rstrip('/')}/index.md")
    elif source.suffix == ".ipynb":
        _replace_link(target / page, link, f"{path.removesuffix('.ipynb')}.md")
    elif source.is_file() and not there.exists():
        _copy(source, there)


def _replace_link(page: Path, link: str, by: str) -> None:
    page.write_text(page.read_text(encoding="utf-8").replace(f"]({link})", f"]({by})"), encoding="utf-8")


def _folder_page(folder: Path) -> str:
    lines = [f"# {folder.name}", ""]
    for each in sorted(folder.glob("*.md")):
        lines.append(f"- [{title_of(each.read_text(encoding='utf-8'), each.stem)}]({each.name})")
    lines += [f"- `{each.name}`" for each in sorted(folder.iterdir()) if each.suffix != ".md"]
    return "\n".join(lines) + "\n"


def in_groups(pages: Iterable[str]) -> dict[str, list[str]]:
    """The navigation: a page that no other group names is about operation, so a new one appears by itself."""
    there = set(pages)
    decisions = sorted(page for page in there if page.startswith(DECISIONS))
    rest = sorted(there - {HOME, *BEGIN, *INSIDE, *decisions})
    groups: dict[str, list[str]] = {
        "Begin": [page for page in BEGIN if page in there],
        "Operate": rest,
        "Inside": [page for page in INSIDE if page in there],
        "Decisions": decisions,
    }
    return {name: found for name, found in groups.items() if found}


def configuration_page() -> str:
    """Every key with its default, from the model."""
    lines = [
        "# Configuration keys",
        "",
        "All keys. `tidemark config show --effective` shows what holds for you.",
    ]
    section = ""
    for each in known_keys():
        if each.section != section:
            section = each.section
            lines += ["", f"## {section}", "", "| key | default | |", "|---|---|---|"]
        default = "required" if each.required else "" if each.default is None else f"`{_flow(each.default)}`"
        said = [f"one of {', '.join(f'`{choice}`' for choice in each.choices)}"] if each.choices else []
        said += [each.text.replace("None", "Left out")] if each.text else []
        lines.append(f"| `{each.path}` | {default} | {'. '.join(said)} |")
    lines += ["", "Keys of `kafka`, `spark` and `hoodie` are passed on as they are."]
    return "\n".join(lines) + "\n"


def _flow(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def commands_page() -> str:
    """The help of every command, as `tidemark COMMAND --help` prints it."""
    lines = ["# Commands", "", "Made from the code: what `--help` prints.", ""]
    for name, parser in sorted(_parsers("tidemark", build_parser())):
        lines += [f"## {name}", "", "```", parser.format_help().rstrip(), "```", ""]
    return "\n".join(lines)


def _parsers(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command, each in action.choices.items():
                yield from _parsers(f"{name} {command}", each)


def notebook_page(notebook: dict[str, Any]) -> str:
    """Cells as text and code, with the outputs that the file holds."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"]).strip()
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        if output := "".join(_outputs(cell)).rstrip():
            lines = output.splitlines()
            kept = [*lines[:_OUTPUT_LINES_MAX], *(["…"] if len(lines) > _OUTPUT_LINES_MAX else [])]
            parts.append("```text\n" + "\n".join(kept) + "\n```")
    return "\n\n".join(parts) + "\n"


def _outputs(cell: dict[str, Any]) -> Iterator[str]:
    for output in cell.get("outputs", []):
        yield "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
