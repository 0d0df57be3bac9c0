"""The import contracts of pyproject.toml, and the graph of the imports, for tests that plant imports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import grimp
from importlinter.application.use_cases import read_user_options
from importlinter.configuration import configure
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract
from importlinter.domain.helpers import import_expressions_to_imports

ROOT = Path(__file__).resolve().parents[2]
configure()
OPTIONS: Any = read_user_options(str(ROOT / "pyproject.toml"))
CONTRACTS: list[dict[str, Any]] = OPTIONS.contracts_options
PACKAGES: set[str] = set(OPTIONS.session_options["root_packages"])
STUBS = {"tidemark.admin", "tidemark.assigner", "tidemark.commit"}
"""Generated from proto/."""
KINDS: dict[str, Any] = {
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
    "protected": ProtectedContract,
}


def product_graph() -> grimp.ImportGraph:
    return grimp.build_graph(*sorted(PACKAGES), include_external_packages=True, cache_dir=None)


def ignored_imports_alone(product: grimp.ImportGraph) -> grimp.ImportGraph:
    """All modules, and of the imports only those that a contract ignores.

    An import that breaks a contract here breaks it in the product, too, where the check takes longer.
    """
    bare = grimp.ImportGraph()
    for module in sorted(product.modules):
        bare.add_module(module, is_squashed=product.is_module_squashed(module))
    for contract in CONTRACTS:
        fields = made(contract)
        for ignored in import_expressions_to_imports(product, getattr(fields, "ignore_imports", None) or ()):
            bare.add_import(importer=ignored.importer.name, imported=ignored.imported.name)
    return bare


def made(contract: dict[str, Any]) -> Any:
    described = {key: value for key, value in contract.items() if key != "type"}
    return KINDS[contract["type"]](contract["name"], OPTIONS.session_options, described)


def is_kept(contract: dict[str, Any], graph: grimp.ImportGraph) -> bool:
    """Whether the graph keeps the contract. A check of ignored imports removes them, so it gets a copy."""
    checked = deepcopy(graph) if contract.get("ignore_imports") else graph
    return bool(made(contract).check(checked, verbose=False).kept)


@contextmanager
def planted(graph: grimp.ImportGraph, importer: str, imported: str) -> Iterator[grimp.ImportGraph]:
    """The graph, in which meanwhile one module imports another. Modules that are not there come and go."""
    added = [module for module in (importer, imported) if module not in graph.modules]
    for module in added:
        graph.add_module(module, is_squashed=not module.startswith("tidemark."))
    present = graph.direct_import_exists(importer=importer, imported=imported)
    graph.add_import(importer=importer, imported=imported, line_number=1, line_contents="import planted")
    try:
        yield graph
    finally:
        if not present:
            graph.remove_import(importer=importer, imported=imported)
        for module in added:
            graph.remove_module(module)
