"""A table that an earlier commit recorded, killed with an epoch decided and not finished, is carried on by
today's code without loss. tests/golden/test_recorded_formats.py reads the same recordings without Kafka.

The newest one is carried on with Spark, the others without (`run_without_spark`): Spark keeps nothing from
one run to the next, and what is stored is read by the same code in all services and in the tasks.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.account_events import AccountEvents, AccountModel, check_against_model
from tests.e2e.run_without_spark import command_in
from tests.e2e.running_table import TIDEMARK, RunningTable
from tests.recorded_table import Recording, recordings, unpack

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SEED = 20_260_101
WITH_SPARK = "418d5e2"
# One of each shape that a ledger's location has had: with the folder's identity, and without.
REFUSED_BY_RUN = ("418d5e2", "42dde60")


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


def refused_here(recording: Recording, *, spark: bool) -> None:
    """`run` refuses it, and names the command that goes on."""
    command = TIDEMARK if spark else command_in(recording.folder)
    words = [str(command), "run", "-c", str(recording.config)]
    refused = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert refused.returncode == 2, refused.stderr
    assert "`tidemark table adopt --moved`" in " ".join(refused.stderr.split())


def test_the_named_recordings_are_there():
    assert {WITH_SPARK, *REFUSED_BY_RUN} <= set(recordings())


@pytest.fixture(params=recordings())
def recorded(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, Recording, RecordedTable]]:
    recording = unpack(request.param, tmp_path)
    running = RecordedTable(recording)
    yield request.param, recording, running
    running.abandon()


def test_recorded_table_is_carried_on_without_loss(recorded: tuple[str, Recording, RecordedTable]):
    name, recording, running = recorded
    spark = name == WITH_SPARK
    decided, events = recording.facts["decided"], events_after(recording.facts)
    timeline, metadata = (
        recording.table / part for part in (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline")
    )
    assert completions(timeline, decided["instant"]) == []
    # A ledger that knows where its table lay, elsewhere when it was recorded.
    if json.loads((recording.expected / "fold.json").read_bytes()).get("location"):
        if name in REFUSED_BY_RUN:
            refused_here(recording, spark=spark)
        running.cli("table", "adopt", "--moved")
    running.start(spark=spark)

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
    check_against_model(running, events, full=True)
    assert running.stop() == 0
