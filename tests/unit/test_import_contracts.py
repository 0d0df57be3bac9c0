"""Every import contract of pyproject.toml fails when an import that it forbids is planted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, permutations, product
from typing import Any

import grimp
import pytest
from importlinter.domain.helpers import MissingImport

from tests.unit.import_contracts import (
    CONTRACTS,
    PACKAGES,
    ROOT,
    ignored_imports_alone,
    is_kept,
    planted,
    product_graph,
)
from tidemark.hudi_format.metadata_table.partitions import PARTITIONS, partition_named
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX


def sources(contract: dict[str, Any]) -> Iterator[str]:
    for source in contract["source_modules"]:
        yield from sorted(PACKAGES) if source == "tidemark.*" else [source]


def forbidden_imports(contract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """(importer, imported): imports that break a contract, one for each room that it speaks of."""
    if contract["type"] == "forbidden":
        for source in sources(contract):
            for target in contract["forbidden_modules"]:
                yield f"{source}.planted", target
    elif contract["type"] == "independence":
        for one in contract["modules"]:
            for other in contract["modules"]:
                if one != other:
                    yield f"{one}.planted", other
    elif contract["type"] == "protected":
        for module in contract["protected_modules"]:
            yield "tidemark.config.planted", module
    else:
        yield from imports_against_layers(contract)


def imports_against_layers(contract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """From each room one into each room of the layer above, and one into each other room of its own."""
    prefix = "".join(f"{container}." for container in contract.get("containers", ()))
    for higher, lower in pairwise(contract["layers"]):
        for room, above in product(rooms_of(lower), rooms_of(higher)):
            yield f"{prefix}{room}", f"{prefix}{above}"
    for layer in contract["layers"]:
        if ":" not in layer:  # with it, rooms of a layer may import each other
            for one, other in permutations(rooms_of(layer), 2):
                yield f"{prefix}{one}", f"{prefix}{other}"


def rooms_of(layer: str) -> list[str]:
    return [room.strip() for room in layer.replace(":", "|").split("|")]


DOMAINS = ("tidemark.commit_coordinator.domain", "tidemark.index_assigner.domain")
PURE = {
    *("__future__", "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq", "itertools"),
    *("math", "operator", "types", "typing", "zlib"),
    *("msgspec", "numpy", "pyarrow"),
    *("tidemark.epoch_protocol", "tidemark.errors"),
}
"""What decisions may import: nothing that asks a clock, a file, another thread or another process."""
CASES = [(contract, *edge) for contract in CONTRACTS for edge in forbidden_imports(contract)]


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return product_graph()


def test_every_contract_is_kept(graph: grimp.ImportGraph) -> None:
    assert [each["name"] for each in CONTRACTS if not is_kept(each, graph)] == []


def test_planted_imports_break_every_contract(graph: grimp.ImportGraph) -> None:
    bare = ignored_imports_alone(graph)
    survivors = []
    for contract, importer, imported in CASES:
        with planted(bare, importer, imported):
            if is_kept(contract, bare):
                survivors.append((contract["name"], importer, imported))
    assert survivors == []
    assert {contract["name"] for contract, _, _ in CASES} == {each["name"] for each in CONTRACTS}


def test_the_command_line_may_import_no_room_of_a_service_but_the_door(graph: grimp.ImportGraph) -> None:
    (contract,) = [each for each in CONTRACTS if "by its offline door" in each["name"]]
    bare = ignored_imports_alone(graph)
    survivors = []
    for importer in contract["source_modules"]:
        for service in contract["forbidden_modules"]:
            for room in sorted(graph.find_children(service)):
                if room.rpartition(".")[2] in {"offline", "main", "failpoints"}:
                    continue
                with planted(bare, importer, room):
                    if is_kept(contract, bare):
                        survivors.append((importer, room))
    assert survivors == []


def test_a_service_is_started_by_its_own_command_alone(graph: grimp.ImportGraph) -> None:
    (contract,) = [each for each in CONTRACTS if "by its offline door" in each["name"]]
    bare = ignored_imports_alone(graph)
    for service in contract["forbidden_modules"]:
        with planted(bare, "tidemark.cli.commands.run", f"{service}.main"):
            assert not is_kept(contract, bare)


def test_an_ignored_import_that_is_not_there_fails(graph: grimp.ImportGraph) -> None:
    ignoring = [each for each in CONTRACTS if each.get("ignore_imports")]
    assert len(ignoring) == 4
    for contract in ignoring:
        stale = {**contract, "ignore_imports": [*contract["ignore_imports"], "tidemark.cli.gone -> grpc"]}
        with pytest.raises(MissingImport):
            is_kept(stale, graph)


def test_ignored_imports_say_why() -> None:
    """Each line ends in a comment. That an ignore which matches nothing fails is the linter's default."""
    assert not any("unmatched_ignore_imports_alerting" in each for each in CONTRACTS)
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    ignored = [line for line in lines if re.match(r'\s*"[\w.*]+ -> [\w.*]+"', line)]
    assert len(ignored) == sum(len(each.get("ignore_imports", ())) for each in CONTRACTS)
    assert [line for line in ignored if not re.search(r"# \S+ \S+", line)] == []


def impure_imports(graph: grimp.ImportGraph) -> list[tuple[str, str]]:
    """Imports of the two folders ``domain`` of anything but themselves and what is pure."""
    return [
        (module, imported)
        for domain in DOMAINS
        for module in sorted({domain} | graph.find_descendants(domain))
        for imported in sorted(graph.find_modules_directly_imported_by(module))
        if not any(f"{imported}.".startswith(f"{allowed}.") for allowed in (domain, *PURE))
    ]


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("imported", ["time", "random", "tempfile", "tidemark.table_status.status", "yaml"])
def test_decisions_import_only_what_is_pure(graph: grimp.ImportGraph, domain: str, imported: str) -> None:
    assert impure_imports(graph) == []
    with planted(graph, domain, imported):
        assert impure_imports(graph) == [(domain, imported)]


def test_the_contract_of_metadata_partitions_is_about_each_of_them() -> None:
    (contract,) = [each for each in CONTRACTS if each["name"] == "Metadata partitions do not know each other"]
    kinds = {
        type(partition).__module__ for partition in (*PARTITIONS, partition_named(f"{SECONDARY_PREFIX}x"))
    }
    assert set(contract["modules"]) == kinds


def test_contracts_about_all_code_are_about_every_package() -> None:
    """A list of packages would miss those that are made later."""
    everywhere = [
        each for each in CONTRACTS if each["name"].startswith(("Tests' doubles", "Nothing that comes"))
    ]
    assert [each["source_modules"] for each in everywhere] == [["tidemark.*"], ["tidemark.*"]]
