"""Whether a planned epoch can be committed with the indexes that the table has by then."""

from __future__ import annotations

import msgspec
import pytest

from tidemark.commit_coordinator.commit.kept_indexes import KeptIndexes, refuse_other_indexes
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.kept_indexes import KeptPartitioned

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
