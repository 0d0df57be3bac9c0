"""Every import contract of pyproject.toml fails when an import that it forbids is planted."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.application.use_cases import read_user_options
from importlinter.configuration import configure
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract
from importlinter.contracts.protected import ProtectedContract

ROOT = Path(__file__).resolve().parents[2]
configure()
OPTIONS: Any = read_user_options(str(ROOT / "pyproject.toml"))
CONTRACTS: list[dict[str, Any]] = OPTIONS.contracts_options
KINDS: dict[str, Any] = {
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
    "protected": ProtectedContract,
}


def planted(contract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(importer, imported): imports that break a contract, one for each room that it speaks of."""
    if contract["type"] == "forbidden":
        for source in contract["source_modules"]:
            for target in contract["forbidden_modules"]:
                yield f"{source}.planted", target
    elif contract["type"] == "independence":
        for one in contract["modules"]:
            for other in contract["modules"]:
                if one != other:
                    yield f"{one}.planted", other
    elif contract["type"] == "protected":
        for module in contract["protected_modules"]:
            yield "tidemark.commit_coordinator.commit.planted", module
    else:
        (container,) = contract["containers"]
        layers = [
            [room.strip() for room in layer.replace(":", "|").split("|")] for layer in contract["layers"]
        ]
        for higher, lower in pairwise(layers):
            for room in lower:
                yield f"{container}.{room}", f"{container}.{higher[0]}"


CASES = [(contract, *edge) for contract in CONTRACTS for edge in planted(contract)]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    packages = OPTIONS.session_options["root_packages"]
    return grimp.build_graph(*packages, include_external_packages=True, cache_dir=None)


def is_kept(contract: dict[str, Any], graph: grimp.ImportGraph) -> bool:
    described = {key: value for key, value in contract.items() if key != "type"}
    made = KINDS[contract["type"]](contract["name"], OPTIONS.session_options, described)
    return bool(made.check(graph, verbose=False).kept)


def test_every_contract_is_kept(graph: grimp.ImportGraph) -> None:
    assert [each["name"] for each in CONTRACTS if not is_kept(each, deepcopy(graph))] == []


def test_planted_imports_break_every_contract(graph: grimp.ImportGraph) -> None:
    survivors = []
    for contract, importer, imported in CASES:
        wrong = deepcopy(graph)
        for module in (importer, imported):
            if module not in wrong.modules:
                wrong.add_module(module, is_squashed=not module.startswith("tidemark."))
        wrong.add_import(importer=importer, imported=imported, line_number=1, line_contents="import planted")
        if is_kept(contract, wrong):
            survivors.append((contract["name"], importer, imported))
    assert survivors == []
    assert {contract["name"] for contract, _, _ in CASES} == {each["name"] for each in CONTRACTS}


def test_ignored_imports_are_there_and_say_why() -> None:
    """An ignore that matches nothing fails the linter: that is its default."""
    ignoring = [each["name"] for each in CONTRACTS if each.get("ignore_imports")]
    assert ignoring == ["PySpark is imported by the job, its task entry and the table services alone"]
    assert not any("unmatched_ignore_imports_alerting" in each for each in CONTRACTS)
