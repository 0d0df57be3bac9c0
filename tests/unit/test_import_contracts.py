"""Every import contract of pyproject.toml fails when an import that it forbids is planted."""

from __future__ import annotations

import re
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
from importlinter.domain.helpers import MissingImport

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


def test_the_command_line_may_import_no_room_of_a_service_but_the_door(graph: grimp.ImportGraph) -> None:
    (contract,) = [each for each in CONTRACTS if "by its offline door" in each["name"]]
    survivors = []
    for importer in contract["source_modules"]:
        for service in contract["forbidden_modules"]:
            for room in sorted(graph.find_children(service)):
                if room.rpartition(".")[2] in {"offline", "main", "failpoints"}:
                    continue
                wrong = deepcopy(graph)
                wrong.add_import(
                    importer=importer, imported=room, line_number=1, line_contents="import planted"
                )
                if is_kept(contract, wrong):
                    survivors.append((importer, room))
    assert survivors == []


def test_a_service_is_started_by_its_own_command_alone(graph: grimp.ImportGraph) -> None:
    (contract,) = [each for each in CONTRACTS if "by its offline door" in each["name"]]
    for service in contract["forbidden_modules"]:
        wrong = deepcopy(graph)
        wrong.add_import(
            importer="tidemark.cli.commands.run",
            imported=f"{service}.main",
            line_number=1,
            line_contents="import planted",
        )
        assert not is_kept(contract, wrong)


def test_an_ignored_import_that_is_not_there_fails(graph: grimp.ImportGraph) -> None:
    ignoring = [each for each in CONTRACTS if each.get("ignore_imports")]
    assert len(ignoring) == 2
    for contract in ignoring:
        stale = {**contract, "ignore_imports": [*contract["ignore_imports"], "tidemark.cli.gone -> grpc"]}
        with pytest.raises(MissingImport):
            is_kept(stale, deepcopy(graph))


def test_ignored_imports_say_why() -> None:
    """Each line ends in a comment. That an ignore which matches nothing fails is the linter's default."""
    assert not any("unmatched_ignore_imports_alerting" in each for each in CONTRACTS)
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    ignored = [line for line in lines if re.match(r'\s*"[\w.*]+ -> [\w.*]+"', line)]
    assert len(ignored) == sum(len(each.get("ignore_imports", ())) for each in CONTRACTS)
    assert [line for line in ignored if not re.search(r"# \S+ \S+", line)] == []
