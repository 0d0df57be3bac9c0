"""Unit tests wait for no disk."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _nothing_waits_for_the_disk() -> Iterator[None]:
    """No test of this level loses power, so none can tell a synced file from another; thousands of them wait
    several milliseconds each. A descriptor that is closed is an error here, too.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", _checked)
        yield


def _checked(descriptor: int) -> None:
    os.fstat(descriptor)
