"""What a soak asks of its figures in the end, and that its command fails by it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.soak import __main__ as command
from tests.soak import soak
from tests.soak.bounds import MINUTES_MIN
from tests.soak.gauges import Gauges
from tests.soak.heaps import Heaps
from tests.soak.soak import Outcome, Settings, Soak
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

STEADY: list[float | None] = [100.0] * MINUTES_MIN
LEAKING: list[float | None] = [100.0 + 10 * minute for minute in range(MINUTES_MIN)]
KAFKA = cast(EmbeddedKafka, SimpleNamespace(pids={}, bootstrap_servers=""))


class Part:
    """A feeder or gauges with nothing to do."""

    def __init__(self, figures: dict[str, Any] | None = None) -> None:
        self.failures: list[str] = []
        self._figures = figures or {}

    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""

    def figures(self, _: int) -> dict[str, Any]:
        return self._figures


def judged(monkeypatch: pytest.MonkeyPatch, settings: Settings, **changed: list[float | None]) -> Outcome:
    """A soak whose minutes are over at once, with these figures; `changed`: but for those of these kinds."""
    made = Soak(settings, lambda _: None)
    figures = {name: changed.get(name.partition(":")[0], STEADY) for name in made._wanted()}
    monkeypatch.setattr(soak, "Feeder", lambda *_: Part())
    monkeypatch.setattr(soak, "Gauges", lambda *_: cast(Gauges, Part(figures)))
    monkeypatch.setattr(Soak, "_minutes", lambda *_: None)
    monkeypatch.setattr(Soak, "_at_rest", lambda *_: iter(()))
    return made._soak(KAFKA, cast(Heaps, None))


def test_a_figure_that_grows_fails_a_long_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(tmp_path, MINUTES_MIN, rate=0.0)
    assert judged(monkeypatch, settings).problems == []
    for kind in ("memory", "descriptors", "disk", "topic"):
        problems = judged(monkeypatch, settings, **{kind: LEAKING}).problems
        assert problems
        assert all(each.startswith(f"{kind}: ") and " grows: 170 in minute 8" in each for each in problems)


def test_too_few_records_fail_a_long_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [problem] = judged(monkeypatch, Settings(tmp_path, MINUTES_MIN, rate=10.0)).problems
    assert "this is no soak at 10 a second" in problem


def test_a_slice_of_more_than_three_triggers_fails_a_soak_however_early(tmp_path: Path) -> None:
    settings = Settings(tmp_path, MINUTES_MIN, rate=0.0, retain_s=60)
    for longest, is_wrong in ((120.0, False), (121.0, True)):
        figures: dict[str, list[float | None]] = {
            "slices: log files of data": [longest, *[100.0] * (MINUTES_MIN - 1)],
            "slices: log files of the index": [360.0, *[300.0] * (MINUTES_MIN - 1)],
        }
        problems = list(Soak(settings, lambda _: None)._bounds(Outcome(figures=figures)))
        assert problems == ["slices: log files of data: 121 in minute 1, limit 120"] * is_wrong


def test_logs_may_grow_until_they_are_rotated(tmp_path: Path) -> None:
    """An hour of them is a fifth of what is kept; no rule of growth can tell that from a leak."""
    rotated = 3 * 3 * float(8 << 20)
    for most, is_wrong in ((rotated, False), (rotated + 4_096, True)):
        figures: dict[str, list[float | None]] = {
            "disk: logs": [most / MINUTES_MIN * (minute + 1) for minute in range(MINUTES_MIN)]
        }
        settings = Settings(tmp_path, MINUTES_MIN, rate=0.0, retain_s=60)
        problems = list(Soak(settings, lambda _: None)._bounds(Outcome(figures=figures)))
        assert [problem.startswith("disk: logs: ") for problem in problems] == [True] * is_wrong


def test_a_short_soak_has_fixed_limits_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = dict.fromkeys(("memory: ", "descriptors: ", "disk: ", "topic: "), 150.0)
    settings = Settings(tmp_path, MINUTES_MIN, rate=10.0, limits=limits)
    assert judged(monkeypatch, settings).problems == []
    [problem] = judged(monkeypatch, settings, memory=LEAKING).problems
    assert problem == "memory: kafka: 170 in minute 8, limit 150"


def test_a_figure_that_nobody_measured_fails_a_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gap: list[Any] = [*STEADY[:-1], None]
    problems = judged(monkeypatch, Settings(tmp_path, MINUTES_MIN, rate=0.0), memory=gap).problems
    assert problems == ["memory: kafka was not measured in minute 8"]


@pytest.mark.parametrize("problems", [[], ["memory: kafka grows"]])
def test_make_soak_applies_the_rule_of_growth_and_fails_by_what_is_wrong(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problems: list[str],
) -> None:
    given: list[Settings] = []

    def run(settings: Settings, _: object) -> Any:
        given.append(settings)
        return SimpleNamespace(run=lambda: Outcome(problems, {"memory: kafka": STEADY}))

    monkeypatch.setattr(command, "Soak", run)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["soak", "--dir", str(tmp_path / "soak")])
    assert command.main() == len(problems)
    assert (given[0].limits, given[0].minutes) == (None, 15)
    shown = capsys.readouterr()
    assert all(f"FAILED: {each}" in shown.out + shown.err for each in problems)
