"""The demo's view: a panel on a terminal, plain lines elsewhere, a verdict that follows the checks."""

from __future__ import annotations

import io
import re

import pytest

from tidemark.demo.comparison import TableDifference
from tidemark.demo.flights import StreamCounts
from tidemark.demo.model import LifeEvent
from tidemark.demo.report import (
    Check,
    DemoReport,
    KeyStory,
    UpkeepAction,
    UpkeepSetting,
    print_report,
    query_examples,
    table_checks,
)
from tidemark.demo.terminal import CacheTierStats, DemoStats, DemoView, open_view, plain_line
from tidemark.demo.text import duration, grouped, instant, share, sparkline

KEY = "flight_date:2013-01-01,carrier:MQ,flight:3944,origin:JFK"
SAME = TableDifference(26_483, 26_483, 0, 0, 0, 0, ())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _stats(elapsed_s: float, phase: str = "writing") -> DemoStats:
    return DemoStats(
        phase=phase,
        elapsed_s=elapsed_s,
        records_total=83_844,
        sent=40_000,
        sent_per_s=9_876.0,
        committed=36_000,
        committed_per_s=9_000.0,
        lag_records=4_000,
        epochs_committed=12,
        epochs_in_flight=1,
        last_instant="20261121094500123",
        commit_latency_ms_last=650.0,
        commit_latency_ms_p50=640.0,
        commit_latency_ms_p99=1_210.0,
        inserts=20_000,
        updates=15_000,
        deletes=300,
        dead_letters=21,
        tiers=(CacheTierStats("hot", 900, 20_000), CacheTierStats("mdt", 9)),
    )


def _report(checks: tuple[Check, ...]) -> DemoReport:
    events = (
        LifeEvent(450, 1_357_001_520_000_000, "scheduled", "2013-01-01", "inserted into 2013-01-01"),
        LifeEvent(2_445, None, "null value", None, "deleted"),
    )
    return DemoReport(
        table_path="/data/warehouse/flights",
        config_path="/data/flights.yaml",
        months=1,
        flights=27_004,
        stream=StreamCounts(records=83_844, late=818, repeated=886, cancelled=339, removed=185, broken=42),
        seconds=8.2,
        epochs=12,
        commit_latency_ms_p50=640.0,
        commit_latency_ms_p99=None,
        checks=checks,
        stories=(KeyStory("A flight that was cancelled", KEY, events, "in no tier"),),
        queries=query_examples("/data/warehouse/flights", KEY),
        upkeep=(UpkeepAction("compact-data", 31, 4.2), UpkeepAction("archive", 40, 0.3)),
        settings=(UpkeepSetting("clean.retain", "10s", "1h"),),
    )


def _printed(report: DemoReport) -> str:
    stream = io.StringIO()
    print_report(open_view(stream, {}).console, report)
    return stream.getvalue()


def test_plain_lines_come_every_two_seconds_and_at_a_new_phase_without_escapes() -> None:
    stream = io.StringIO()
    with open_view(stream, {}) as view:
        for tick in range(9):
            view.update(_stats(tick * 0.5))
        view.update(_stats(4.1, "checking"))
    lines = stream.getvalue().splitlines()
    assert [line.split("|")[0].split() for line in lines] == [
        ["0.0", "s", "writing"],
        ["2.0", "s", "writing"],
        ["4.0", "s", "writing"],
        ["4.1", "s", "checking"],
    ]
    assert "\x1b" not in stream.getvalue()


def test_a_plain_line_holds_rates_lag_epochs_rows_and_tiers() -> None:
    line = plain_line(_stats(3.0))
    for part in (
        "sent 40 000 of 83 844 (9 876/s)",
        "committed 36 000 (9 000/s)",
        "lag 4 000 records, 444 ms",
        "12 committed, 1 in flight, latency p50 640 ms p99 1.2 s",
        "20 000 inserts, 15 000 updates, 300 deletes, 21 dead letters",
        "hot 99 % (20 000 keys), mdt 1.0 %",
    ):
        assert part in line


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_a_terminal_that_wants_no_colour_gets_plain_lines(environment: dict[str, str]) -> None:
    stream = Terminal()
    with open_view(stream, environment) as view:
        view.update(_stats(1.0))
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().startswith("   1.0 s  writing")


def test_a_terminal_gets_a_panel_that_ends_with_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with open_view(stream, {}) as view:
        view.update(_stats(1.0))
        drawn = stream.getvalue()
        view.say("kafka is ready")
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", drawn)
    assert "Tidemark · writing · 1.0 s" in text
    for part in ("40 000 / 83 844", "4 000 records", "12 committed", "hot 99 %", "20261121094500123"):
        assert part in text
    assert "kafka is ready" in stream.getvalue()
    assert "\x1b[?25h" in stream.getvalue(), "the cursor is shown again"


def test_the_view_survives_statistics_of_an_empty_start() -> None:
    stream = Terminal()
    with open_view(stream, {"TERM": "xterm"}) as view:
        view.update(DemoStats("starting", 0.0))
    assert isinstance(view, DemoView)
    assert plain_line(DemoStats("starting", 0.0)).startswith("   0.0 s  starting | sent 0 of 0 (0/s)")


def test_report_tells_checks_story_and_queries() -> None:
    text = _printed(_report(table_checks(SAME, 42, 42)))
    assert "27 004 flights of 1 month(s) of 2013 as 83 844 records in 8.2 s: 10 225 records/s" in text
    assert "524 deletes (185 as null values), 42 broken" in text
    assert re.search(r"rows in the table +26 483 +26 483 +ok", text)
    assert re.search(r"2013-01-01 00:52:00 +scheduled +inserted into 2013-01-01", text)
    assert "now: in no tier" in text
    assert KEY in text
    assert "Proved: all 6 checks passed." in text
    assert re.search(r"compact-data +31 file groups +4.2 s", text)
    assert re.search(r"archive +40 instants +300 ms", text)
    assert re.search(r"clean.retain +10s +1h", text)


@pytest.mark.parametrize(
    ("difference", "dead_letters"),
    [
        (SAME, 41),
        (TableDifference(26_483, 26_482, 1, 0, 0, 0, ()), 42),
        (TableDifference(26_483, 26_484, 0, 1, 0, 0, ()), 42),
        (TableDifference(26_483, 26_484, 0, 0, 1, 0, ()), 42),
        (TableDifference(26_483, 26_483, 0, 0, 0, 1, ()), 42),
    ],
)
def test_one_difference_is_enough_to_prove_nothing(difference: TableDifference, dead_letters: int) -> None:
    report = _report(table_checks(difference, 42, dead_letters))
    text = _printed(report)
    assert not report.proved
    assert "FAILED" in text
    assert "Not proved:" in text
    assert "Proved:" not in text


def test_a_report_without_checks_proves_nothing() -> None:
    assert not _report(()).proved


def test_query_texts_are_python_and_name_the_table() -> None:
    queries = query_examples("/data/it's/flights", KEY)
    assert len(queries) == 3
    for query in queries:
        compile(query.text, query.title, "exec")
        assert repr("/data/it's/flights") in query.text


def test_numbers_and_times_read_well() -> None:
    assert (grouped(336_776), grouped(0), grouped(999.6)) == ("336 776", "0", "1 000")
    assert [duration(each) for each in (None, 0.4, 640, 1_210, 185_000)] == [
        "–",
        "0 ms",
        "640 ms",
        "1.2 s",
        "3 min 05 s",
    ]
    assert (share(0, 0), share(0, 5), share(1, 200), share(1, 2)) == ("–", "0 %", "0.5 %", "50 %")
    assert (sparkline([]), sparkline([0, 0]), sparkline([0, 5, 10])) == ("", "▁▁", "▁▅█")
    assert instant(1_357_001_520_000_000) == "2013-01-01 00:52:00"
