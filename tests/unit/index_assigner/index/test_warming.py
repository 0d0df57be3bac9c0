"""The whole index is loaded into run files ahead of look-ups."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.index_assigner.index_world import MANY, DataTable
from tests.unit.page.page_world import FACTS, PageWorld
from tests.unit.typed_status import typed_status
from tidemark.hudi_format.hfile import writer as hfile_writer
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.assign.warming import WarmBusyError, WarmRequests
from tidemark.index_assigner.index.errors import IndexRebuiltError
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.ports import Tier, WarmProgress
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.runs.loading import ThreadedLoads
from tidemark.page.overview import overview


@pytest.fixture
def fine(monkeypatch: pytest.MonkeyPatch) -> DataTable:
    """A table with a block for each key: of three keys nothing is loaded because much of it was read."""
    monkeypatch.setattr(hfile_writer, "_block_bytes", lambda _: 1)
    table = DataTable()
    table.commit_rows(MANY)
    table.compact_index(clean=True)
    return table


def one_of_each_shard(table: DataTable) -> list[str]:
    keys = dict(zip(record_index_shard(list(MANY), table.shards).tolist(), MANY, strict=True))
    return list(keys.values())


def loaded(index: TieredIndex, start: bool = True) -> WarmProgress:
    progress = index.warm(start)
    for _ in range(1_000):
        if not progress.left:
            return progress
        index.load_on()
        after = index.warm(start=False)
        # A shard that is filled anew loses its run.
        assert after.entries >= progress.entries or after.entries_max != progress.entries_max
        progress = after
        time.sleep(0.001)
    raise AssertionError("it does not end")


def test_all_shards_are_loaded_without_a_look_up_and_answer_from_their_runs(assigners, table) -> None:
    one = assigners(table).open()
    assert one.index.warm(start=False) == WarmProgress(table.shards, 0, 0, 0, len(MANY))
    one.index.load_on()
    assert one.index.stats()["runs_loaded"] == 0
    assert one.index.warm(start=True).left == table.shards
    assert loaded(one.index) == WarmProgress(table.shards, table.shards, 0, len(MANY), len(MANY))
    found = one.ask(list(MANY))
    assert {each.tier for each in found.values()} == {Tier.RUN}
    assert one.index.stats()["blocks_read"] == 0
    assert loaded(one.index).loaded == table.shards
    assert one.index.stats()["runs_loaded"] == table.shards


@pytest.mark.parametrize("start", [False, True])
def test_base_files_that_were_cleaned_since_the_lanes_were_opened_are_looked_up_anew(
    assigners, table, start: bool
) -> None:
    one = assigners(table).open()
    table.commit_rows({"new": (1, 1)})
    table.compact_index(clean=True)
    assert one.index.warm(start=start).entries_max == len(MANY) + 1
    assert loaded(one.index).loaded == table.shards


@pytest.mark.parametrize("start", [False, True])
@pytest.mark.parametrize("threaded", [False, True])
def test_base_files_that_were_opened_before_they_were_cleaned_are_looked_up_anew(
    assigners, fine, start: bool, threaded: bool
) -> None:
    """The load finds that out, and not the question how far it is."""
    one = assigners(fine, loads=ThreadedLoads() if threaded else None).open()
    one.ask(one_of_each_shard(fine))
    fine.commit_rows({"new": (1, 1)})
    fine.compact_index(clean=True)
    one.index.warm(start=start)
    progress = loaded(one.index)
    assert (progress.loaded, progress.left) == (fine.shards, 0)
    assert progress.entries == progress.entries_max == len(MANY) + 1
    assert {found.tier for found in one.ask(list(MANY)).values()} <= {Tier.RUN, Tier.HOT}


def test_what_was_asked_for_is_loaded_also_if_a_look_up_opens_its_lane_anew_meanwhile(
    assigners, fine
) -> None:
    one = assigners(fine).open()
    one.index.warm(start=True)
    fine.commit_rows({"new": (1, 1)})
    fine.compact_index(clean=True)
    before = one.index._held.openings()
    one.ask(one_of_each_shard(fine))
    assert not set(before) & set(one.index._held.openings())
    progress = loaded(one.index, start=False)
    assert (progress.loaded, progress.left) == (fine.shards, 0)


def test_a_base_file_that_no_listing_finds_any_more_ends_the_warming_with_that_error(
    assigners, table
) -> None:
    """Of a damaged table, say: it is not looked up for ever."""
    one = assigners(table).open()
    one.ask(list(MANY)[:20])
    for info in table.storage.list(RECORD_INDEX_FOLDER):
        if info.path.endswith(".hfile"):
            table.storage.delete(info.path)
    with pytest.raises(IndexRebuiltError):
        loaded(one.index)


def test_a_load_that_goes_on_is_on_the_page_and_in_status_until_it_is_done(assigners, table) -> None:
    """By the figures of a real index, which an assigner tells with each of its reports."""
    one, world, shown = assigners(table).open(), PageWorld(), []
    one.index.warm(start=True)
    while one.index.warm(start=False).left:
        one.index.load_on()
        told = on_the_page(world, one.index.stats())
        shown.append((told["loading"], told["loading_of"]))
    under_way = [(done, all_) for done, all_ in shown if all_]
    assert any(done for done, _ in under_way), "no load was seen under way"
    assert all(0 <= done <= all_ <= len(MANY) for done, all_ in under_way)
    assert on_the_page(world, one.index.stats())["loading_of"] == 0


def on_the_page(world: PageWorld, figures: dict[str, float]) -> dict[str, Any]:
    """What the page says of run files when `status` has these figures of one assigner."""
    member = {"slot": 0, "process": "a", "address": "h:1", "lanes": ["0"], "uncommitted_entries": 0}
    world.status["services"]["assign"] = [{**member, "figures": figures}]
    status = typed_status(world.status)
    assert status.services.assign[0].figures["run_loading_entries"] == figures["run_loading_entries"]
    told: dict[str, Any]
    (told,) = [each for each in overview(FACTS, status, [], {}, 0)["tiers"] if each["tier"] == "run"]
    return told


def test_shards_without_a_base_file_need_no_run(assigners) -> None:
    table = DataTable()
    table.commit_rows(MANY)
    one = assigners(table).open()
    assert loaded(one.index) == WarmProgress(table.shards, table.shards, 0, 0, 0)


def test_what_has_no_room_is_neither_loaded_nor_left(assigners, table) -> None:
    one = assigners(table, limits=IndexLimits(16 << 20, 1)).open()
    progress = loaded(one.index)
    assert (progress.loaded, progress.left) == (0, 0)
    assert {key: found.group for key, found in one.ask(list(MANY)).items()} == {
        key: group for key, (group, _) in MANY.items()
    }


def test_requests_of_other_threads_are_answered_by_the_one_that_owns_the_index(assigners, table) -> None:
    one, requests = assigners(table).open(), WarmRequests()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(requests.ask, True)
        while not asked.done():
            requests.answer(one.index, one.index.open_lanes())
        assert asked.result().left == table.shards
    while one.index.warm(start=False).left:
        requests.answer(one.index, one.index.open_lanes())
    assert one.index.stats()["runs_loaded"] == table.shards


def test_a_request_that_nobody_answers_is_refused() -> None:
    requests = WarmRequests()
    with pytest.raises(WarmBusyError):
        requests.ask(True, timeout_s=0.0)
    answered = threading.Event()
    requests.answer(Unasked(answered), set())  # type: ignore[arg-type]
    assert not answered.is_set(), "the request was given up"


class Unasked:
    """An index of which only `load_on` may be called."""

    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked

    def load_on(self) -> None:
        return None

    def warm(self, start: bool) -> WarmProgress:
        self._asked.set()
        raise AssertionError(start)
