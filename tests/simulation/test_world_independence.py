"""The checkers of the simulation share no code with what they check."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

CHECKERS = Path(__file__).parent / "world" / "checkers"
BY_NAME = {"importlib", "pkgutil", "runpy"}
ALLOWED = {*sys.stdlib_module_names, "fastavro", "pyarrow"} - BY_NAME
OWN = "tests.simulation.world.checkers"


def imported(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            found.add(node.module)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("__import__", "exec", "eval"):
            found.add("something by name")
    return found


def test_checkers_import_nothing_of_the_product() -> None:
    files = sorted(CHECKERS.glob("*.py"))
    assert len(files) >= 5
    for file in files:
        foreign = {
            name
            for name in imported(file)
            if name.partition(".")[0] not in ALLOWED and not name.startswith(OWN)
        }
        assert foreign == set(), file.name
