"""What the soak measures of the table itself, its rule, and its picture."""

from __future__ import annotations

import json
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.soak.bounds import unsettled
from tests.soak.curves import write_curves
from tests.soak.latency import Latencies
from tests.soak.soak import Settings
from tests.soak.table_gauge import TableGauge, most_logs, table_figures
from tests.unit.table_verification.damage import changed_table
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.table_config import TableType


def test_log_files_timelines_and_files_of_a_table_are_counted(tmp_path: Path) -> None:
    changed_table(tmp_path / "t", TableType.MERGE_ON_READ)
    found = table_figures(tmp_path / "t")
    assert found["slices: log files of data"] >= 1
    assert found["slices: log files of the index"] >= 2
    assert found["timeline: data"] % 3 == found["timeline: index"] % 3 == 0
    assert found["timeline: data"] >= 6
    assert found["files: table"] > found["timeline: data"] + found["timeline: index"]
    assert found["disk: table"] > 0
    assert most_logs([FileSlice("p", "f", None, "1", ("a", "b")), FileSlice("p", "g", "b", "1")]) == 2


@pytest.mark.parametrize(("last", "fails"), [(114.9, False), (115.1, True)])
def test_no_minute_after_the_settled_one_is_much_above_those_before(last: float, fails: bool) -> None:
    figure = [10.0, 100.0, 70.0, 90.0, last, 100.0]
    found = list(unsettled({"timeline: data": figure}, 2))
    assert bool(found) is fails
    assert all("115 in minute 5, at most 100 in minutes 1 to 2" in each for each in found)
    with pytest.raises(ValueError, match="6 minutes, of which 6"):
        list(unsettled({"timeline: data": figure}, 6))


def test_the_minute_in_which_processes_start_permits_no_later_latency() -> None:
    started, steady = 10_620.0, [2_040.0] * 5
    slow = [started, *steady, 2_590.0, 2_040.0]
    (found,) = unsettled({"latency: p99 ms": slow}, 6)
    assert "grows: 2,590 in minute 7, at most 2,040 in minutes 2 to 6" in found
    assert list(unsettled({"latency: p99 ms": [started, *steady, 2_340.0]}, 6)) == []
    assert list(unsettled({"files: table": slow}, 6)) == [], "the first minute of a size counts"
    with pytest.raises(ValueError, match="8 minutes, of which 1"):
        list(unsettled({"latency: p99 ms": slow}, 1))


def test_a_few_more_bytes_of_little_are_no_growth() -> None:
    assert list(unsettled({"disk: state": [1 << 20, 3 << 20]}, 1)) == []
    assert list(unsettled({"disk: state": [1 << 20, (3 << 20) + 1]}, 1))
    assert list(unsettled({"disk: table": [100 << 20, 116 << 20]}, 1))


def test_a_figure_settles_after_twice_the_retention_and_a_third_of_the_run() -> None:
    assert Settings(Path(), 60, retain_s=600).settled == 20
    assert Settings(Path(), 15, retain_s=60).settled == 5
    assert Settings(Path(), 10, retain_s=150).settled == 5
    assert Settings(Path(), 8, retain_s=60, retention_s=120).settled == 4, "Kafka keeps two minutes"
    assert Settings(Path(), 10).settled is None


def test_figures_are_written_as_data_and_as_a_picture(tmp_path: Path) -> None:
    figures: dict[str, list[float | None]] = {
        "disk: table": [1 << 20, None, 3 << 20],
        "timeline: <data>": [1.0, 2.0, 3.0],
    }
    write_curves(tmp_path / "curves", figures, 1)
    document = json.loads((tmp_path / "curves" / "figures.json").read_text())
    assert document == {"settled_minute": 1, "figures": figures}
    texts = [each.text for each in ElementTree.parse(tmp_path / "curves" / "curves.svg").iter() if each.text]
    assert "disk: table (MiB)" in texts
    assert "timeline: <data>" in texts


def test_files_that_vanish_while_they_are_listed_are_listed_again(tmp_path: Path) -> None:
    samples: list[float] = []

    def sample(_: Path) -> dict[str, float]:
        samples.append(1.0)
        if len(samples) == 1:
            raise FileMissingError("cleaned meanwhile")
        return {"files: table": float(len(samples))}

    gauge = TableGauge(tmp_path, sample, lambda _: 7.0, every_s=0.001)
    gauge.start()
    end_s = time.monotonic() + 60
    while len(samples) < 4 and time.monotonic() < end_s:
        time.sleep(0.001)
    gauge.stop()
    assert gauge.failures == []
    figures = gauge.figures(1)
    assert figures["snapshot: hudi-rs ms"] == [7.0]
    assert (figures["files: table"][0] or 0) >= 3


def test_an_error_that_no_retry_cures_fails_the_soak(tmp_path: Path) -> None:
    def sample(_: Path) -> dict[str, float]:
        raise ValueError("no table")

    gauge = TableGauge(tmp_path, sample, lambda _: 7.0, every_s=0.001)
    gauge.start()
    gauge._thread.join(60)
    assert gauge.failures == ["the table gauge ended: ValueError: no table"]


def test_latencies_are_figures_by_minute(tmp_path: Path) -> None:
    latencies = Latencies(tmp_path, started_s=0.0)
    assert latencies.figures(2) == {"latency: p50 ms": [None, None], "latency: p99 ms": [None, None]}
