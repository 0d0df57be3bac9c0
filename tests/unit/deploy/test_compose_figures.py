"""What the compose test makes of the engine's and of `tidemark status`'s words."""

import pytest

from tests.compose.faults import committed_epoch, lag
from tests.compose.figures import memory_bytes


@pytest.mark.parametrize(
    ("said", "used"),
    [("109.5MiB / 768MiB", 114_819_072), ("1.5GiB / 2GiB", 1_610_612_736), ("0B / 0B", 0), ("-- / --", 0)],
)
def test_memory_is_read_in_bytes(said, used):
    assert memory_bytes(said) == used


def test_a_status_before_the_first_commit_is_epoch_0():
    assert committed_epoch({}) == 0
    assert committed_epoch({"last_commit": {"epoch": 0, "instant": None}}) == 0
    assert committed_epoch({"last_commit": {"epoch": 7}}) == 7


def test_lag_is_what_is_not_committed():
    assert lag({"lag": {"input_offsets_not_shuffled": 2, "input_offsets_not_committed": 5}}) == 5
