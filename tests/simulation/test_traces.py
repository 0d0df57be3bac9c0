"""The recorded traces say what happens today, and recording keeps what people wrote."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.traces.file_words import with_short_names
from tests.simulation.traces.trace_file import recorded_anew, trace_files

TRACES = {file.stem: file for file in trace_files()}
SHORT = """# Why.
> setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
> round
    coordinator   does what it did when this was recorded

# Then.
> rest
    the table     is as it was
"""


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_is_what_happens_today(name: str) -> None:
    text = TRACES[name].read_text("utf-8")
    assert recorded_anew(text) == text, "look at the difference; if it is meant: make traces"


def test_the_textbook_has_its_seven_chapters() -> None:
    assert set(TRACES) == {
        "changed_stats", "foreign_commit", "frozen_assigner", "lost_lock", "plan_to_commit", "takeover",
        "void_and_rewind",
    }  # fmt: skip


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_begins_with_what_it_is_about_and_names_no_time_or_id(name: str) -> None:
    text = TRACES[name].read_text("utf-8")
    heading, empty, *sentences = text.partition("\n\n")[0].split("\n")
    assert heading.startswith("# ")
    assert empty == "#"
    assert " ".join(sentences).count(". ") >= 2
    assert not re.search(r"\d{14}|[0-9a-f]{8}-[0-9a-f]{4}", text)


def test_recording_replaces_what_happened_and_keeps_comments_and_events() -> None:
    written = recorded_anew(SHORT)
    assert [line for line in written.splitlines() if not line.startswith("    ")] == [
        line for line in SHORT.splitlines() if not line.startswith("    ")
    ]
    assert "when this was recorded" not in written
    assert "    coordinator   claims the table: its term is 0" in written
    assert written.endswith("    the table     has no row\n")
    assert recorded_anew(written) == written


def test_a_trace_has_to_end_at_rest() -> None:
    with pytest.raises(ValueError, match="'> rest'"):
        recorded_anew(SHORT.replace("> rest", "> round"))


def test_times_are_named_in_their_order_and_file_groups_as_they_come() -> None:
    group = "e1988ad9-f06c-444a-825b-413f8a9a021e-0"
    lines = [f"d0/{group}_0-0-0_20250615150640420.parquet", "20250615150640000.rollback"]
    assert with_short_names(lines) == ["d0/g1_t2.parquet", "t1.rollback"]


def test_every_trace_is_named_on_the_page_about_them() -> None:
    page = (Path(__file__).parents[2] / "docs" / "traces.md").read_text("utf-8")
    assert all(f"tests/simulation/traces/{name}.txt" in page for name in TRACES)
