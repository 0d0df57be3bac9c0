"""Verification beside the epochs as metrics and on the page of `tidemark status`."""

from __future__ import annotations

from typing import Any

from prometheus_client import generate_latest

from tests.unit.typed_status import typed_verification
from tidemark.cli.commands.admin import verified_line
from tidemark.cli.run.run_metrics import VerificationMetrics
from tidemark.stream_runtime.metrics import Metrics

DIFFERENCES = {
    "file-missing": {"count": 2, "examples": ["a", "b"]},
    "key-twice": {"count": 1, "examples": ["k"]},
}


def shown(*documents: dict[str, Any] | None) -> list[str]:
    metrics = Metrics("run", "t")
    verification = VerificationMetrics(metrics)
    for document in documents:
        verification.show(typed_verification(document))
    page = generate_latest(metrics.registry).decode().replace('{table="t"}', "").splitlines()
    return sorted(line.removeprefix("tidemark_run_") for line in page if line.startswith("tidemark_run_ver"))


def ended(agrees: bool | None, verified: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    last = {"agrees": agrees, "seconds": 1.5, "differences": {}, "error": None, **more}
    return {"every_commits": 5, "running": False, "verified": verified, "last": last}


def line_of(document: dict[str, Any]) -> str:
    state = typed_verification(document)
    assert state is not None
    return verified_line(state)


def test_no_gauge_exists_before_the_first_verdict() -> None:
    off, waiting = None, {"every_commits": 5, "running": True, "verified": None, "last": None}
    assert shown(off, waiting) == []


def test_gauges_say_what_was_verified_and_what_was_found() -> None:
    agreed = ended(True, {"as_of": "19700101000100500", "epoch": 9})
    assert shown(agreed) == [
        "verified_epoch 9.0",
        "verified_instant_seconds 60.5",
        "verify_agrees 1.0",
        "verify_differences 0.0",
        "verify_duration_seconds 1.5",
    ]
    found = ended(False, {"as_of": "19700101000100500", "epoch": 9}, differences=DIFFERENCES, seconds=2)
    assert "verify_agrees 0.0" in shown(agreed, found)
    assert "verify_differences 3.0" in shown(agreed, found)
    assert "verified_epoch 9.0" in shown(agreed, found)


def test_a_verification_without_a_verdict_leaves_the_last_one_standing() -> None:
    undecided = ended(None, None, seconds=9, error="busy")
    assert shown(undecided) == ["verify_duration_seconds 9.0"]
    assert "verify_agrees 0.0" in shown(ended(False, None, differences=DIFFERENCES), undecided)


def test_status_says_how_the_last_one_ended_and_up_to_where_all_agreed() -> None:
    waiting = {"every_commits": 5, "running": True, "verified": None, "last": None}
    assert line_of(waiting) == "not yet, every 5 commits"
    agreed = ended(True, {"as_of": "T1", "epoch": 9}, as_of="T1")
    assert line_of(agreed) == "as of T1: agrees, in 1.5 s; agreed up to epoch 9"
    found = ended(False, {"as_of": "T1", "epoch": 9}, as_of="T2", differences=DIFFERENCES)
    assert line_of(found) == "as of T2: DOES NOT AGREE, in 1.5 s; agreed up to epoch 9"
    assert line_of(ended(None, None, as_of=None, error="busy")) == "as of -: undecided, in 1.5 s"
