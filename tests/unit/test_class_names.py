"""No class name stands for two things within one service: a reader who greps for a name finds its class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

SERVICES = sorted(
    each
    for each in (Path(__file__).resolve().parents[2] / "services" / "tidemark").iterdir()
    if each.is_dir()
)


def doubled(files: list[Path]) -> dict[str, list[str]]:
    """Public class names that more than one module defines."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        for each in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
                found[each.name].append(file.name)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


@pytest.mark.parametrize("service", SERVICES, ids=lambda each: each.name)
def test_a_class_name_stands_for_one_thing_within_a_service(service: Path) -> None:
    assert doubled(sorted(service.rglob("*.py"))) == {}


def test_a_name_that_two_modules_define_is_found(tmp_path: Path) -> None:
    for name in ("first.py", "second.py"):
        (tmp_path / name).write_text("class Lease:\n    pass\n\n\nclass _Own:\n    pass\n")
    assert doubled(sorted(tmp_path.iterdir())) == {"Lease": ["first.py", "second.py"]}
