"""No name of a class or type stands for two things: a reader who greps for a name finds the one thing it is.

Three rules: within one service or library, whose modules may define the name or import it from elsewhere in
`tidemark`; and among the libraries, which a service imports side by side. Type variables are left out:
their names mean nothing outside one function or class.

The two protocols in `SHARED_PORTS` may stand in two libraries, because each is one port: `hudi_format` does
not import `stream_runtime`, so it declares as much of the port as it needs, and the services pass the same
object to both.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SERVICES: Final = sorted(
    each.name for each in (ROOT / "services" / "tidemark").iterdir() if any(each.glob("*.py"))
)
LIBRARIES: Final = sorted(
    each.name for each in (ROOT / "libs" / "tidemark").iterdir() if any(each.glob("*.py"))
)
SHARED_PORTS: Final = {
    "Clock": "hudi_format needs the wall clock and a sleep in milliseconds; stream_runtime has both and more",
    "IdSource": "hudi_format needs UUIDs; stream_runtime has them and random numbers",
}

Modules = Mapping[str, ast.Module]


def parsed(folders: Iterable[Path]) -> dict[str, ast.Module]:
    """The modules below folders of packages, by the name that an import has for them."""
    found = {}
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            dotted = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[dotted] = ast.parse(file.read_text(encoding="utf-8"))
    return found


@cache
def product() -> Modules:
    return parsed((ROOT / "services", ROOT / "libs"))


@cache
def defined(module: ast.Module) -> frozenset[str]:
    """Public classes, type aliases and new types at the top of a module."""
    found = set()
    for each in module.body:
        match each:
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="NewType"))):
                found.add(name)
    return frozenset(name for name in found if not name.startswith("_"))


@cache
def imported(module: ast.Module) -> list[tuple[str, ast.alias]]:
    """What a module imports by name from `tidemark`, also inside functions."""
    return [
        (each.module, alias)
        for each in ast.walk(module)
        if isinstance(each, ast.ImportFrom) and each.module and each.module.split(".")[0] == "tidemark"
        for alias in each.names
    ]


def origin(modules: Modules, module: str, name: str) -> str | None:
    """The module that defines a name which `module` has, itself or by imports; None when it is no type."""
    if module not in modules:
        return None
    if name in defined(modules[module]):
        return module
    for source, alias in imported(modules[module]):
        if (alias.asname or alias.name) == name:
            return origin(modules, source, alias.name)
    return None


def origins(modules: Modules, package: str) -> dict[str, set[str]]:
    """The modules that define each name of a type which a package defines or imports. A type that is imported
    under another name has both.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for dotted, module in modules.items():
        if not f"{dotted}.".startswith(f"{package}."):
            continue
        for name in defined(module):
            found[name].add(dotted)
        for source, alias in imported(module):
            if (of := origin(modules, source, alias.name)) is not None:
                found[alias.name].add(of)
                found[alias.asname or alias.name].add(of)
    return found


def doubled(found: Mapping[str, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(of) for name, of in found.items() if len(of) > 1}


@pytest.mark.parametrize("package", SERVICES + LIBRARIES)
def test_a_name_stands_for_one_thing_within_a_service_or_library(package: str) -> None:
    assert doubled(origins(product(), f"tidemark.{package}")) == {}


def test_a_name_stands_for_one_thing_among_the_libraries() -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for library in LIBRARIES:
        for name, of in origins(product(), f"tidemark.{library}").items():
            found[name] |= of
    twice = doubled(found)
    assert twice.keys() - SHARED_PORTS.keys() == set(), twice
    assert twice.keys() == SHARED_PORTS.keys(), "a shared port that is defined once needs no reason here"


def made(folder: Path, **sources: str) -> Modules:
    package = folder / "tidemark" / "own"
    package.mkdir(parents=True)
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
    return parsed([folder])


def test_a_name_that_two_modules_define_is_found(tmp_path: Path) -> None:
    lease = "class Lease:\n    pass\n\n\nclass _Own:\n    pass\n"
    kinds = "from typing import NewType, TypeAlias\nRow: TypeAlias = {of}\nId = NewType('Id', {of})\n"
    modules = made(
        tmp_path, a=lease, b=lease, c=kinds.format(of="int"), d=kinds.format(of="str"), e="T = TypeVar('T')\n"
    )
    assert doubled(origins(modules, "tidemark.own")) == {
        "Lease": ["tidemark.own.a", "tidemark.own.b"],
        "Row": ["tidemark.own.c", "tidemark.own.d"],
        "Id": ["tidemark.own.c", "tidemark.own.d"],
    }


def test_a_name_that_is_defined_here_and_imported_from_elsewhere_is_found(tmp_path: Path) -> None:
    made(
        tmp_path,
        own="class Lease:\n    pass\n",
        inside="def late():\n    from tidemark.other import Lease\n",
        renamed="from tidemark.own.own import Lease as Term\n",
    )
    other = tmp_path / "tidemark" / "other"
    other.mkdir()
    (other / "__init__.py").write_text("from tidemark.other.lease import Lease\n")
    (other / "lease.py").write_text("class Lease:\n    pass\n\n\nclass Term:\n    pass\n")
    found = doubled(origins(parsed([tmp_path]), "tidemark.own"))
    assert found == {"Lease": ["tidemark.other.lease", "tidemark.own.own"]}
    (tmp_path / "tidemark" / "own" / "term.py").write_text("from tidemark.other.lease import Term\n")
    assert doubled(origins(parsed([tmp_path]), "tidemark.own")).keys() == {"Lease", "Term"}


def test_a_name_that_is_imported_by_two_ways_stands_for_one_thing(tmp_path: Path) -> None:
    modules = made(
        tmp_path,
        __init__="from tidemark.own.lease import Lease\n",
        lease="class Lease:\n    pass\n",
        direct="from tidemark.own.lease import Lease\n",
        by_package="from tidemark.own import Lease\nfrom tidemark.absent import Gone\n",
    )
    assert doubled(origins(modules, "tidemark.own")) == {}
