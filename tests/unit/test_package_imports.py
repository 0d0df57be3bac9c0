"""Which package may import which: ARCHITECTURE.md section 6, and contracts that forbid every other import."""

from __future__ import annotations

import re
from copy import deepcopy

import grimp
import pytest

from tests.unit.import_contracts import (
    CONTRACTS,
    PACKAGES,
    ROOT,
    STUBS,
    ignored_imports_alone,
    is_kept,
    planted,
    product_graph,
)

FOUNDATIONS = {"errors", "redaction"}
"""All others may import them."""
LIBRARIES = FOUNDATIONS | {
    "config",
    "epoch_protocol",
    "hudi_format",
    "ledger_client",
    "record_formats",
    "stream_runtime",
    "table_status",
    "table_verification",
}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "redaction": set(),
    "config": FOUNDATIONS,
    "hudi_format": FOUNDATIONS,
    "epoch_protocol": FOUNDATIONS,
    "stream_runtime": FOUNDATIONS | {"config"},
    "record_formats": FOUNDATIONS | {"config", "hudi_format", "stream_runtime"},
    "ledger_client": FOUNDATIONS | {"config", "epoch_protocol", "hudi_format", "stream_runtime"},
    "table_status": FOUNDATIONS | {"epoch_protocol", "admin"},
    "table_verification": FOUNDATIONS | {"hudi_format"},
    "index_assigner": LIBRARIES | {"assigner", "commit"},
    "stream_writer": LIBRARIES | {"commit"},
    "commit_coordinator": LIBRARIES | {"admin", "assigner", "commit"},
    "page": LIBRARIES - {"table_verification"} | {"admin"},
    "console": LIBRARIES | {"admin"},
    "cli": LIBRARIES | {"console", "demo", "init", "doctor"},
    "demo": LIBRARIES | {"console"},
    "init": LIBRARIES | {"console", "doctor"},
    "doctor": LIBRARIES | {"console"},
}
"""What any module of a package may import. Doors, for named modules only, are contracts of their own."""


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return product_graph()


def some_module(graph: grimp.ImportGraph, package: str) -> str:
    """A module that exists: a new one would break the contracts that list all rooms of a package."""
    return min(graph.find_children(f"tidemark.{package}"), default=f"tidemark.{package}")


def test_every_package_has_its_row_and_its_layer() -> None:
    folders = {
        folder.name
        for root in ("libs", "services")
        for folder in (ROOT / root / "tidemark").iterdir()
        if (folder / "__init__.py").is_file()
    }
    assert set(ALLOWED) == folders
    assert {f"tidemark.{name}" for name in folders} | STUBS == PACKAGES
    (packages,) = [each for each in CONTRACTS if each["name"].startswith("Packages,")]
    layered = [name.strip() for layer in packages["layers"] for name in layer.split("|")]
    assert sorted(layered) == sorted(PACKAGES - STUBS)


def test_imports_between_packages_break_a_contract_unless_allowed(graph: grimp.ImportGraph) -> None:
    bare = ignored_imports_alone(graph)
    survivors = []
    for package, allowed in ALLOWED.items():
        importer = some_module(graph, package)
        for other in sorted(PACKAGES - {f"tidemark.{name}" for name in {package, *allowed}}):
            with planted(bare, importer, other):
                if all(is_kept(contract, bare) for contract in CONTRACTS):
                    survivors.append((importer, other))
    assert survivors == []


def test_allowed_imports_between_packages_break_no_contract(graph: grimp.ImportGraph) -> None:
    right = deepcopy(graph)
    for package, allowed in ALLOWED.items():
        for other in sorted(allowed):
            right.add_import(importer=some_module(graph, package), imported=f"tidemark.{other}")
    assert [each["name"] for each in CONTRACTS if not is_kept(each, right)] == []


def test_the_code_map_allows_the_same_imports() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = text.partition("\n## 6. ")[2].partition("\n## ")[0]
    written = {}
    for line in section.splitlines():
        row = re.match(r"\| `(?:libs|services)/tidemark/(\w+)` \|.*\| ([^|;]*)(?:;[^|]*)? \|$", line)
        if row is not None:
            written[row[1]] = named_packages(row[2])
    assert written == {package: allowed - FOUNDATIONS for package, allowed in ALLOWED.items()}


def named_packages(cell: str) -> set[str]:
    """The packages that a cell of the code map names before its semicolon."""
    allowing, _, excepted = cell.partition(" without ")
    words = set(re.findall(r"\w+", allowing))
    named = {name for name in (*ALLOWED, "admin", "assigner", "commit") if name in words}
    return (
        (named | (LIBRARIES if "libs" in words else set())) - set(re.findall(r"\w+", excepted)) - FOUNDATIONS
    )
