"""A table that an earlier commit recorded, killed with an epoch decided and not finished, is carried on by
today's code without loss. tests/golden/test_recorded_formats.py reads the same recordings without Kafka.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.account_events import AccountEvents, AccountModel, check_against_model
from tests.e2e.running_table import TIDEMARK, RunningTable
from tests.recorded_table import Recording, recordings, unpack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SEED = 20_260_101


class RecordedTable(RunningTable):
    """The recording as a running table. Records with unknown fields are taken now: one is among its dead
    letters.
    """

    def __init__(self, recording: Recording) -> None:
        self.folder, self.config, self.table = recording.folder, recording.config, recording.table
        text = self.config.read_text()
        assert "unknown_fields: error" in text
        self.config.write_text(text.replace("unknown_fields: error", "unknown_fields: drop"))
        recording.new_ports()
        self._process = None


def events_after(facts: dict[str, Any]) -> AccountEvents:
    """A stream that goes on where the recorded one ended."""
    model = AccountModel(facts["rows"], facts["broken"], facts["newest"])
    return AccountEvents(SEED, model=model, now=facts["now"])


def below_a_tombstone(model: AccountModel) -> list[tuple[str, dict[str, Any]]]:
    """An event for every deleted key, older than what was seen of it."""
    gone = sorted(set(model.newest) - set(model.rows))
    return [
        (key, {"id": key, "region": "north", "at": model.newest[key] - 1, "balance": 13.5}) for key in gone
    ]


def completions(timeline: Path, instant: str) -> list[str]:
    """Completion times of a deltacommit: completed files are named REQUESTED_COMPLETED.deltacommit."""
    return [file.stem.partition("_")[2] for file in timeline.glob(f"{instant}_*.deltacommit")]


def go_on_here(recording: Recording, running: RecordedTable) -> None:
    """Starts it. A ledger that knows where its table lay, elsewhere when it was recorded, is refused with the
    command that goes on.
    """
    if json.loads((recording.expected / "fold.json").read_bytes()).get("location"):
        command = [str(TIDEMARK), "run", "-c", str(recording.config)]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert refused.returncode == 2, refused.stderr
        assert "`tidemark table adopt --moved`" in " ".join(refused.stderr.split())
        running.cli("table", "adopt", "--moved")
    running.start()


@pytest.fixture(params=recordings())
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Recording, RecordedTable]]:
    recording = unpack(request.param, tmp_path)
    running = RecordedTable(recording)
    yield recording, running
    running.abandon()


def test_recorded_table_is_carried_on_without_loss(recorded: tuple[Recording, RecordedTable]):
    recording, running = recorded
    decided, events = recording.facts["decided"], events_after(recording.facts)
    timeline, metadata = (
        recording.table / part for part in (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline")
    )
    assert completions(timeline, decided["instant"]) == []
    go_on_here(recording, running)

    # What was recorded and not committed, and no more than that.
    assert running.cli("flush", "--timeout", "240s")["epoch"] > decided["epoch"]
    assert completions(timeline, decided["instant"]) == [decided["data_completion"]]
    assert completions(metadata, decided["instant"]) == [decided["metadata_completion"]]
    check_against_model(running, events)

    # Recorded tombstones keep older events out; a recorded dead letter is taken now.
    late = below_a_tombstone(events.model)
    assert late, "the recording has no deleted key"
    for event in late:
        events.model.apply(event)
    running.feed(late)
    replayed = running.cli("dead-letter", "replay", "--reason", "unknown-field")
    assert replayed["replayed"] == recording.facts["replayable"]
    row = {"id": "unknown-field", "region": "north", "at": 1, "balance": 1.5}
    events.model.apply(("unknown-field", row))
    running.feed(events.take(400))
    running.cli("flush", "--timeout", "240s")
    check_against_model(running, events)
    assert running.cli("verify", "--full")["agrees"]
    assert running.stop() == 0
