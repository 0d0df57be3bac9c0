"""The documents of a compaction: equal values give equal bytes, damage names the file."""

from __future__ import annotations

import pytest

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.table_services.operations import (
    CompactionPlan,
    MergeOperation,
    MergeOutcome,
    decode_outcomes,
    decode_plan,
    encode_outcomes,
    encode_plan,
    output_name,
    output_path,
)

T = "20261128003000000"


def plan(is_index: bool = False) -> CompactionPlan:
    operations = tuple(
        MergeOperation("r0", f"f{n}-0", "20261128002000000", None, (f".f{n}-0_{T}.log.1_0-0-0",), 10, 0)
        for n in range(2)
    )
    return CompactionPlan(T, is_index, '{"type":"record"}', operations, ("r1",))


def outcome(ordinal: int, ticket: Ticket | None = None) -> MergeOutcome:
    return MergeOutcome(ordinal, output_name(plan(), ordinal), 900, 3, 1, 1, 1, 3, 3, 2**63, ticket)


def test_a_plan_comes_back_as_it_was_stored():
    assert decode_plan(encode_plan(plan()), "p") == plan()


def test_outcomes_are_stored_in_order_of_their_operations():
    ticket = Ticket("r0/x", 900, "ab", "staged")
    stored = encode_outcomes((outcome(1, ticket), outcome(0)))
    assert decode_outcomes(stored, "p") == (outcome(0), outcome(1, ticket))
    assert stored == encode_outcomes((outcome(0), outcome(1, ticket)))


def test_the_output_of_an_operation_is_named_by_its_place_in_the_plan():
    assert output_name(plan(), 1) == f"f1-0_1-0-0_{T}.parquet"
    assert output_path(plan(is_index=True), 0, "m") == f"m/r0/f0-0_0-0-0_{T}.hfile"


@pytest.mark.parametrize("decode", [decode_plan, decode_outcomes])
def test_a_damaged_document_is_named(decode):
    with pytest.raises(CorruptFileError, match="store/x"):
        decode(b'{"instant":', "store/x")
