"""Which modules of this repository import which, read from their source without running any of it.

Imports inside functions count. Imports for types alone (`if TYPE_CHECKING:`) do not: no test notices them. A
test also depends on the `conftest.py` of its folder and of the folders above, which pytest loads unasked, and
a module of generated stubs depends on its file in `proto/`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_IMPORT_ROOTS: Final = ("libs/", "services/")
"""`libs/tidemark/errors/__init__.py` is imported as `tidemark.errors`; other paths are names as they are."""
_FOLDERS: Final = ("libs", "services", "testing", "tests", "tools", "bench", "deploy")


def module_name(path: str) -> str:
    """The name under which the file at this path (from the repository's root) is imported."""
    for root in _IMPORT_ROOTS:
        path = path.removeprefix(root)
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def stub_names(proto: str) -> tuple[str, str]:
    """The two modules that are generated from `proto/tidemark/<area>/v1/<name>.proto`."""
    name = proto.removeprefix("proto/").removesuffix(".proto").replace("/", ".")
    return f"{name}_pb2", f"{name}_pb2_grpc"


@dataclass(frozen=True)
class ImportGraph:
    """``paths``: module -> its file. ``importers``: module -> who imports it, also where its file is gone."""

    paths: Mapping[str, str]
    importers: Mapping[str, frozenset[str]]

    def distances(self, changed: Collection[str]) -> dict[str, int]:
        """Module -> the fewest imports from it to one of the changed ones, which have 0."""
        found = dict.fromkeys(changed, 0)
        nearest = list(found)
        while nearest:
            following = []
            for module in nearest:
                for importer in sorted(self.importers.get(module, ())):
                    if importer not in found:
                        found[importer] = found[module] + 1
                        following.append(importer)
            nearest = following
        return found


def read_graph(root: Path) -> ImportGraph:
    """Reads every Python file of the repository; one that is no Python imports nothing."""
    paths = {module_name(path): path for path in _python_files(root)}
    generated = {name for path in _protos(root) for name in stub_names(path)}
    importers: dict[str, set[str]] = {}
    for module, path in paths.items():
        for imported in _imports(root / path, paths.keys() | generated):
            importers.setdefault(imported, set()).add(module)
        for conftest in _conftests(path, paths.values()):
            importers.setdefault(module_name(conftest), set()).add(module)
    return ImportGraph(paths, {module: frozenset(names) for module, names in importers.items()})


def _python_files(root: Path) -> Iterator[str]:
    for folder in _FOLDERS:
        for file in sorted((root / folder).rglob("*.py")):
            yield file.relative_to(root).as_posix()


def _protos(root: Path) -> Iterator[str]:
    for file in sorted((root / "proto").rglob("*.proto")):
        yield file.relative_to(root).as_posix()


def _conftests(path: str, paths: Collection[str]) -> Iterator[str]:
    """Of the test's folder and of those above."""
    if Path(path).name.startswith("test_"):
        for folder in Path(path).parents:
            conftest = (folder / "conftest.py").as_posix()
            if conftest in paths:
                yield conftest


def _imports(file: Path, modules: Collection[str]) -> set[str]:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return set()
    found: set[str] = set()
    for node in _run_nodes(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from package import module` and `from module import name` look alike.
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(inner.intersection(modules) or {node.module})
    return found


def _run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker sees."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from _run_nodes(node)
