"""Every name has one address: the module that defines it, or the package that is its room.

A room is a folder. Its `__init__`, or another module of the same folder, may hand on what the room defines; a
name of another room is imported from there, so that whoever reads an import sees whose code it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("libs", "services")
IMPORTING = ("testing", "tests", "bench", "tools", "deploy")
"""Besides the product itself."""


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """All statements, inner ones too; expressions, which are most of a tree, are passed over."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            if isinstance(inner, list):
                yield from statements(inner)


class Module:
    """A module's name, its room, where each name at its top comes from, and (module, name) of every `from
    module import name`, also inside functions.
    """

    def __init__(self, name: str, source: str, is_package: bool) -> None:
        self.name = name
        self.room = name if is_package else name.rpartition(".")[0]
        # Not kept: trees of all modules at once are more than Python's collector goes through quickly.
        tree = ast.parse(source)
        self.imported: dict[str, str] = {}
        self.listed: list[str] = []
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                self.imported |= {each.asname or each.name: node.module for each in node.names}
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                self.listed = list(ast.literal_eval(node.value))
        self.imports = [
            (node.module, each.name)
            for node in statements(tree.body)
            if isinstance(node, ast.ImportFrom) and node.module
            for each in node.names
        ]


def modules_of(folder: str) -> dict[str, Module]:
    found = {}
    top = ROOT if folder not in PRODUCT else ROOT / folder
    for file in sorted((ROOT / folder).rglob("*.py")):
        parts = list(file.relative_to(top).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, file.read_text(encoding="utf-8"), is_package)
    return found


def is_of(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def handed_on(product: Mapping[str, Module], importing: Mapping[str, Module]) -> list[str]:
    """Imports of a name from a product module that has it from another room, and such names in `__all__`."""
    wrong = []
    for module in importing.values():
        for source, name in module.imports:
            via = product.get(source)
            comes_from = via.imported.get(name) if via is not None else None
            if (
                comes_from is not None
                and f"{source}.{name}" not in product
                and not is_of(comes_from, via.room)
            ):
                wrong.append(f"{module.name}: {name} is of {comes_from}, not of {source}")
    for module in product.values():
        for name in module.listed:
            comes_from = module.imported.get(name)
            if comes_from is not None and not is_of(comes_from, module.room):
                wrong.append(f"{module.name}: __all__ lists {name} of {comes_from}")
    return wrong


@pytest.fixture(scope="module")
def product() -> dict[str, Module]:
    return modules_of("libs") | modules_of("services")


def test_no_module_hands_on_another_rooms_names(product: dict[str, Module]) -> None:
    assert len(product) > 400
    assert handed_on(product, product) == []
    for folder in IMPORTING:
        assert handed_on(product, modules_of(folder)) == []


def planted(*sources: tuple[str, str]) -> dict[str, Module]:
    return {name: Module(name, source, is_package=False) for name, source in sources}


def test_a_name_of_another_room_is_found() -> None:
    modules = planted(
        ("a.one.origin", "class Thing: ..."),
        ("a.two.middle", "from a.one.origin import Thing"),
        ("a.three.user", "def f():\n    from a.two.middle import Thing"),
    )
    assert handed_on(modules, modules) == ["a.three.user: Thing is of a.one.origin, not of a.two.middle"]


def test_a_name_of_another_room_in_all_is_found() -> None:
    modules = planted(
        ("a.one.origin", "class Thing: ..."),
        ("a.two.middle", "from a.one.origin import Thing\n__all__ = ['Thing']"),
    )
    assert handed_on(modules, modules) == ["a.two.middle: __all__ lists Thing of a.one.origin"]


def test_a_rooms_own_modules_may_hand_on_its_names() -> None:
    modules = planted(
        ("a.one.origin", "class Thing: ..."),
        ("a.one.ports", "from a.one.origin import Thing\n__all__ = ['Thing']"),
        ("a.two.user", "from a.one.ports import Thing"),
    )
    modules["a.one"] = Module("a.one", "from a.one.origin import Thing\n__all__ = ['Thing']", is_package=True)
    assert handed_on(modules, modules) == []
