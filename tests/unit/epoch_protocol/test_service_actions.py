"""Service actions in the fold: one open action of each kind, in order, and nothing else is touched."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.epoch_protocol.builders import claim, coordinator, rewound, tagged
from tidemark.epoch_protocol.entries import (
    PROTOCOL_VERSION,
    CoordinatorClaimed,
    LanesClaimed,
    Stage,
    decode_decision,
    decode_ledger_entry,
    encode_entry,
)
from tidemark.epoch_protocol.errors import UnknownEntryError
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceDecided,
    ServiceKind,
    ServiceOutcome,
    ServicePlanned,
    ServiceStep,
    ServiceVoided,
)
from tidemark.epoch_protocol.service_status import decided_services, open_service

T = "20260101000000000"
KIND = ServiceKind.COMPACT_DATA


def planned(number: int = 1, kind: ServiceKind = KIND, term: int = 0) -> ServicePlanned:
    return ServicePlanned(term, number, kind, T, "plan", "sha", 0)


def decided(number: int = 1, term: int = 0) -> ServiceDecided:
    return ServiceDecided(term, number, "2", "3", "statuses", "sha", 0)


def committed(number: int = 1) -> ServiceCommitted:
    return ServiceCommitted(0, number, T, "3", ServiceOutcome.DONE, 0)


def voided(number: int = 1, undecides: str = "") -> ServiceVoided:
    return ServiceVoided(0, number, "why", undecides)


def fold_after(*entries: ServiceStep) -> Fold:
    fold = Fold()
    fold.apply_decision(0, coordinator())
    for offset, entry in enumerate(entries, 1):
        assert fold.apply_decision(offset, entry) is Verdict.APPLIED
    return fold


def verdict(fold: Fold, entry: ServiceStep) -> Verdict:
    return fold.apply_decision(fold.state.decisions_next, entry)


@pytest.mark.parametrize(
    "entries",
    [
        (planned(), decided(), committed()),
        (planned(), voided()),
        (planned(), decided(), voided(undecides="3")),
    ],
)
def test_an_action_goes_from_its_plan_to_one_of_its_ends(entries: tuple[ServiceStep, ...]) -> None:
    fold = fold_after(*entries)
    assert fold.state.services == {}
    assert verdict(fold, planned(2)) is Verdict.APPLIED


@pytest.mark.parametrize(
    ("entries", "refused"),
    [
        ((), planned(2)),
        ((), decided()),
        ((), committed()),
        ((), voided()),
        ((planned(),), planned(2)),
        ((planned(),), planned(1, ServiceKind.ARCHIVE)),
        ((planned(),), decided(2)),
        ((planned(),), committed()),
        ((planned(),), voided(undecides="3")),
        ((planned(), decided()), decided()),
        ((planned(), decided()), voided()),
        ((planned(), decided()), voided(undecides="2")),
        ((planned(), voided()), planned(1)),
        ((planned(), voided()), decided()),
    ],
)
def test_an_entry_out_of_place_changes_nothing(
    entries: tuple[ServiceStep, ...], refused: ServiceStep
) -> None:
    fold = fold_after(*entries)
    before = (dict(fold.state.services), fold.state.next_service)
    assert verdict(fold, refused) is Verdict.OUT_OF_PLACE
    assert (dict(fold.state.services), fold.state.next_service) == before


def test_kinds_are_open_beside_each_other_and_decided_ones_come_in_order() -> None:
    fold = fold_after(planned(1), planned(2, ServiceKind.ARCHIVE), decided(2), decided(1))
    assert [each.planned.service for each in decided_services(fold.state.services)] == [1, 2]
    assert open_service(fold.state.services, 3) is None


def test_entries_of_an_ended_coordinator_do_not_count() -> None:
    fold = fold_after(planned())
    fold.apply_decision(fold.state.decisions_next, coordinator())
    assert verdict(fold, decided()) is Verdict.STALE_COORDINATOR
    term = fold.state.coordinator_term
    assert term is not None
    assert verdict(fold, decided(term=term)) is Verdict.APPLIED


def test_a_rewind_leaves_actions_alone_and_actions_leave_lanes_alone() -> None:
    fold = fold_after(planned(), decided(), planned(2, ServiceKind.ARCHIVE))
    fold.apply_ledger(0, claim(["0"]))
    fold.apply_ledger(1, tagged({"0": (0, 5)}, {"0": 0}))
    before = dict(fold.state.services)
    assert fold.apply_decision(fold.state.decisions_next, rewound(0, 1, -1)) is Verdict.APPLIED
    assert fold.state.services == before
    lanes = dict(fold.state.assign_lanes)
    verdict(fold, committed())
    assert fold.state.assign_lanes == lanes


def test_a_snapshot_keeps_open_actions_and_one_of_version_1_has_none() -> None:
    fold = fold_after(planned(), decided())
    assert Fold.restore(fold.snapshot()).state == fold.state
    former = msgspec.json.decode(fold.snapshot())
    for name in ("services", "next_service", "protocol"):
        del former[name]
    state = Fold.restore(msgspec.json.encode(former)).state
    assert (state.services, state.next_service, state.protocol) == ({}, 1, 1)


def test_topics_and_snapshots_of_a_higher_version_are_refused() -> None:
    higher = PROTOCOL_VERSION + 1
    with pytest.raises(UnknownEntryError, match="newer Tidemark"):
        decode_decision(encode_entry(CoordinatorClaimed("c", protocol=higher)))
    with pytest.raises(UnknownEntryError, match="newer Tidemark"):
        decode_ledger_entry(encode_entry(LanesClaimed(Stage.ASSIGN, ["0"], 0, 0, "p", protocol=higher)))
    fold = fold_after()
    fold.state.protocol = higher
    with pytest.raises(UnknownEntryError, match="newer Tidemark"):
        Fold.restore(fold.snapshot())


def test_claims_of_lower_versions_are_read() -> None:
    fold = Fold()
    assert fold.apply_decision(0, CoordinatorClaimed("c", protocol=1)) is Verdict.CLAIMED
    assert decode_decision(encode_entry(CoordinatorClaimed("c", protocol=1))).protocol == 1
