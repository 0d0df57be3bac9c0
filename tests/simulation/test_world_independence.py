"""The checkers of the simulation, and Hudi's rules that they and the foreign engine follow, share no code
with what they check.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CHECKERS = TESTS / "simulation" / "world" / "checkers"
RULES = TESTS / "hudi_rules"
BY_NAME = {"importlib", "pkgutil", "runpy"}
ALLOWED = {*sys.stdlib_module_names, "fastavro", "pyarrow"} - BY_NAME
OWN = ("tests.simulation.world.checkers", "tests.hudi_rules")


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


@pytest.mark.parametrize(("folder", "own"), [(CHECKERS, OWN), (RULES, OWN[1:])], ids=["checkers", "rules"])
def test_what_judges_imports_nothing_of_the_product(folder: Path, own: tuple[str, ...]) -> None:
    files = sorted(folder.glob("*.py"))
    assert len(files) >= 5
    for file in files:
        foreign = {
            name
            for name in imported(file)
            if name.partition(".")[0] not in ALLOWED and not name.startswith(own)
        }
        assert foreign == set(), file.name
