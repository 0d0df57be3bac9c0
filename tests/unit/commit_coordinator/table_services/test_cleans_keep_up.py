"""Cleans that cannot take all at once: the next one follows at once, else a busy table grows for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.service_actions import EVERYTHING_NOW
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.commit.stored_documents import load_document
from tidemark.commit_coordinator.table_services import cleans
from tidemark.commit_coordinator.table_services.handler import ServiceFacts
from tidemark.config.table_services_model import CleanConfig
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.table_services.operations import CleanPlan, decode_clean

KINDS = [ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX]


def cleanable(path: Path, config: CleanConfig) -> Story:
    """Several file groups have superseded slices that nobody reads."""
    story = Story(path)
    story.serve()
    assert all(story.served.act(kind) for kind in (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA))
    story.later()
    story.served.config = replace(EVERYTHING_NOW, clean=config)
    story.served.begin()
    return story


@pytest.fixture
def story(tmp_path: Path) -> Story:
    """A clean takes two files, and more may be deleted."""
    return cleanable(tmp_path / "t", CleanConfig(retain_ms=1, max_files=2))


def is_due(story: Story, kind: ServiceKind) -> bool:
    """Whether the kind is due a second after an action of it has ended."""
    facts = ServiceFacts(story.served.state, {kind: story.clock.now_ms() - 1_000})
    return story.served.handlers[kind].due(facts, story.clock.now_ms()) is not None


@pytest.mark.parametrize("kind", KINDS)
def test_a_clean_that_left_files_is_followed_by_the_next_one_at_once(story: Story, kind: ServiceKind):
    cleaned = 0
    story.served.act(kind)
    while is_due(story, kind):
        cleaned += 1
        story.served.act(kind)
    assert cleaned > 1
    story.check()
    files = story.table_files()
    story.served.config = EVERYTHING_NOW
    story.served.begin()
    story.served.act(kind)
    assert story.table_files() == files, "a clean without a limit finds nothing more"


def test_a_look_that_had_no_time_for_all_partitions_goes_on_at_once(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    """It found files in the first partition, and would have come to the second one five minutes later."""
    monkeypatch.setattr(cleans, "LOOK_S", -1.0)
    story.served.config = replace(EVERYTHING_NOW, clean=CleanConfig(retain_ms=1))
    story.served.begin()
    kind = ServiceKind.CLEAN_DATA
    story.served.act(kind)
    assert is_due(story, kind)
    story.served.act(kind)
    assert not is_due(story, kind)


def test_the_last_of_several_cleans_names_the_instant_that_hudi_cleans_from(tmp_path: Path):
    """It has looked at the whole table and left nothing; the one before it must not name any."""
    story = cleanable(tmp_path / "whole", CleanConfig(retain_ms=1))
    assert story.served.plan(ServiceKind.CLEAN_DATA)
    everything = len(planned_clean(story).paths(""))
    story = cleanable(tmp_path / "parts", CleanConfig(retain_ms=1, max_files=everything - 1))
    assert retained_by_the_next_clean(story) is None
    assert is_due(story, ServiceKind.CLEAN_DATA)
    assert retained_by_the_next_clean(story) is not None
    assert not is_due(story, ServiceKind.CLEAN_DATA)


def test_a_clean_whose_files_are_gone_is_not_followed_at_once(story: Story):
    """Another engine took what the plan names: plans that are dropped would follow each other for ever."""
    kind, served = ServiceKind.CLEAN_DATA, story.served
    assert served.plan(kind)
    for path in planned_clean(story).paths(""):
        story.storage.delete(path)
    assert not served.decide(kind)
    assert not is_due(story, kind)


def planned_clean(story: Story) -> CleanPlan:
    planned = story.served.state.services[ServiceKind.CLEAN_DATA].planned
    document = load_document(story.storage, planned.plan_path, planned.plan_sha256)
    return decode_clean(document, planned.plan_path)


def retained_by_the_next_clean(story: Story) -> tuple[str, str] | None:
    """Does the next clean; returns the instant that it names."""
    served = story.served
    assert served.plan(ServiceKind.CLEAN_DATA)
    retained = planned_clean(story).retained
    assert served.decide(ServiceKind.CLEAN_DATA)
    assert served.sweep(ServiceKind.CLEAN_DATA)
    return retained
