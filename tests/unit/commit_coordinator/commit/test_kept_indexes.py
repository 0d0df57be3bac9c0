"""Whether a planned epoch can be committed with the indexes that the table has by then."""

from __future__ import annotations

import msgspec
import pytest

from tidemark.commit_coordinator.commit.kept_indexes import KeptIndexes, refuse_other_indexes
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.kept_indexes import KeptPartitioned, KeptSecondary
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout

PLANNED = EpochPlanned(0, 1, 1, 0, 9, "T1", "0", "", 0)


def refuse(planned: KeptPartitioned | None, now: KeptPartitioned | None) -> None:
    refuse_other_indexes(
        msgspec.structs.replace(PLANNED, partitioned=planned), KeptIndexes(None, (), partitioned=now)
    )


@pytest.mark.parametrize(
    ("planned", "now"),
    [
        (KeptPartitioned(2, "20250101"), KeptPartitioned(2, "20250102")),
        (KeptPartitioned(2, ""), KeptPartitioned(2, "20250102")),
        (None, KeptPartitioned(2, "20250102")),
        (KeptPartitioned(2, "20250101"), None),
    ],
)
def test_an_index_that_was_built_since_the_plan_voids_the_attempt(
    planned: KeptPartitioned | None, now: KeptPartitioned | None
) -> None:
    with pytest.raises(AttemptLostError, match="an index was built") as lost:
        refuse(planned, now)
    assert not lost.value.rewind


@pytest.mark.parametrize(
    ("planned", "now"),
    [
        (KeptPartitioned(2, "20250101"), KeptPartitioned(2, "20250101")),
        # The build was archived while the epoch was written.
        (KeptPartitioned(2, "20250101"), KeptPartitioned(2, "")),
        (KeptPartitioned(2, ""), KeptPartitioned(2, "")),
        (None, None),
    ],
)
def test_an_index_of_which_the_build_was_archived_is_the_same(
    planned: KeptPartitioned | None, now: KeptPartitioned | None
) -> None:
    refuse(planned, now)


INDEX = SecondaryLayout("secondary_index_city", "city", 2)
BEFORE = msgspec.structs.replace(PLANNED, secondary=[KeptSecondary("secondary_index_city", "city", 2, "1")])


def refuse_secondary(*now: SecondaryLayout, build: str = "1", is_written: bool = False) -> None:
    builds = {index.name: build for index in now}
    refuse_other_indexes(BEFORE, KeptIndexes(None, now, builds=builds), is_written=is_written)


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize(
    "now",
    [
        (SecondaryLayout("secondary_index_city", "town", 2),),
        (SecondaryLayout("secondary_index_city", "city", 3),),
        (SecondaryLayout("secondary_index_a", "a", 2), INDEX),
    ],
)
def test_another_secondary_index_than_planned_is_refused(
    now: tuple[SecondaryLayout, ...], is_written: bool
) -> None:
    refuse_secondary(INDEX, is_written=is_written)
    with pytest.raises(AttemptLostError, match="secondary indexes were changed") as lost:
        refuse_secondary(*now, is_written=is_written)
    assert not lost.value.rewind


def test_an_index_that_was_made_anew_or_dropped_matters_until_the_epoch_is_written_into_it() -> None:
    with pytest.raises(AttemptLostError, match="in 2 file groups now, made anew"):
        refuse_secondary(INDEX, build="2")
    with pytest.raises(AttemptLostError, match="none now"):
        refuse_secondary()
    refuse_secondary(INDEX, build="2", is_written=True)
    refuse_secondary(is_written=True)


def test_a_plan_of_a_version_that_did_not_ask_for_builds_stands() -> None:
    """Else the first epoch after an upgrade would be planned again, and said to find the index made anew."""
    with_index = KeptIndexes(None, (INDEX,), builds={INDEX.name: "2"})
    former = msgspec.structs.replace(
        BEFORE, secondary=[msgspec.structs.replace(index, build="") for index in BEFORE.secondary]
    )
    refuse_other_indexes(former, with_index)
    with pytest.raises(AttemptLostError, match="none now"):
        refuse_other_indexes(former, KeptIndexes(None, ()))
