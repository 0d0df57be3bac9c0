"""Which tests belong to a change: those that import what changed, the nearest first, up to a limit.

Example: `epoch_protocol/fold.py` changed. `test_fold.py` imports it (distance 1). `test_next_action.py`
imports `next_action.py`, which imports it (distance 2). A module at the bottom has hundreds of such tests,
and a far one tells little: the limits keep the nearest, and the choice says how many it left out, and which
`make` target runs them.

A changed file that is no Python (a page, a rule, a `.proto`) stands for the modules whose text names it.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Final

from tools.import_graph import ImportGraph, module_name, stub_names

QUICK_LEVELS: Final = ("unit", "golden", "simulation")
"""What needs no broker and no Spark; of equally near tests the earlier level's come first."""
SLOW_LEVELS: Final = ("contract", "integration", "interop", "e2e")
_RULES: Final[Mapping[str, tuple[str, ...]]] = {
    "*.py": ("tests/unit/test_tidy.py", "tests/unit/test_cited_sections.py"),
    "*.md": ("tests/unit/test_cited_sections.py", "tests/unit/test_markdown_links.py"),
}
"""Tests that read every file of a kind, and import none."""


@dataclass(frozen=True)
class Limits:
    """``modules``: of tests, since loading them takes time; ``distance``: imports to what changed."""

    modules: int = 40
    distance: int = 3


@dataclass(frozen=True)
class Choice:
    """``distances``: chosen test module -> imports from it to the nearest changed module, in the order in
    which they run. ``left_out``: level -> how many test modules that depend on the change are not chosen.
    """

    distances: Mapping[str, int]
    left_out: Mapping[str, int]


def changed_files(root: Path, base: str) -> list[str]:
    """Paths that differ between the commit and the working tree, with those that git does not track yet."""
    tracked = _git(root, "diff", "--name-only", "--no-renames", "-z", base)
    return sorted({*tracked, *_git(root, "ls-files", "--others", "--exclude-standard", "-z")})


def base_commit(root: Path, branch: str) -> str:
    """Where this branch left the other one; HEAD where there is no such branch, or none in common."""
    found = subprocess.run(
        ["git", "-c", "safe.directory=*", "merge-base", "HEAD", branch],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return found.stdout.strip() or "HEAD"


def choose(root: Path, graph: ImportGraph, changed: Collection[str], limits: Limits) -> Choice:
    """The tests of the changed files."""
    distances = graph.distances(_changed_modules(root, graph, changed))
    tests = {
        graph.paths[module]: distance for module, distance in distances.items() if _is_test(graph, module)
    }
    for pattern, rules in _RULES.items():
        if any(fnmatch(path, pattern) for path in changed):
            tests.update(dict.fromkeys(rules, 0))
    quick = sorted(
        (path for path in tests if _level(path) in QUICK_LEVELS), key=lambda path: _place(path, tests)
    )
    near = [path for path in quick if tests[path] <= limits.distance][: limits.modules]
    left = Counter(_level(path) for path in quick[len(near) :])
    left.update(level for path in tests if (level := _level(path)) in SLOW_LEVELS)
    return Choice({path: tests[path] for path in near}, dict(left))


def _place(path: str, distances: Mapping[str, int]) -> tuple[int, int, str]:
    return distances[path], QUICK_LEVELS.index(_level(path)), path


def _level(path: str) -> str:
    parts = PurePosixPath(path).parts
    return parts[1] if parts[0] == "tests" and len(parts) > 2 else ""


def _is_test(graph: ImportGraph, module: str) -> bool:
    path = graph.paths.get(module, "")
    return path.startswith("tests/") and PurePosixPath(path).name.startswith("test_")


def _changed_modules(root: Path, graph: ImportGraph, changed: Collection[str]) -> set[str]:
    modules = {module_name(path) for path in changed if path.endswith(".py")}
    protos = [path for path in changed if path.startswith("proto/")]
    modules.update(name for path in protos for name in stub_names(path))
    others = [PurePosixPath(path) for path in changed if not path.endswith(".py")]
    if others:
        texts = {module: (root / path).read_text("utf-8") for module, path in graph.paths.items()}
        modules.update(module for module, text in texts.items() if any(_names(text, path) for path in others))
    return modules


def _names(text: str, path: PurePosixPath) -> bool:
    """Whether a source names the file, or the folder that it lies in as a whole or at a path's end."""
    folder = path.parent.name
    return path.name in text or (bool(folder) and (f'"{folder}"' in text or f'/{folder}"' in text))


def _git(root: Path, *arguments: str) -> list[str]:
    command = ["git", "-c", "safe.directory=*", *arguments]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name]
