"""While modules are imported nothing is collected, and what was imported is never visited again."""

from __future__ import annotations

import gc

import pytest

from tidemark.stream_runtime.platform.loading import without_collections


@pytest.fixture(autouse=True)
def _thawed():
    yield
    gc.unfreeze()


def test_nothing_is_collected_meanwhile_and_what_is_there_is_frozen():
    before = gc.get_freeze_count()
    with without_collections():
        assert not gc.isenabled()
        imported: list[list[int]] = [[] for _ in range(1_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(imported)


def test_collections_go_on_after_a_failed_import():
    with pytest.raises(ImportError), without_collections():
        raise ImportError
    assert gc.isenabled()


def test_who_collects_nothing_goes_on_so():
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
