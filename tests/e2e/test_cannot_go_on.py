"""What cannot go on stops loudly, keeps everything, and is taken up again: real processes of one run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.e2e.running_table import RunningTable

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
INPUT = "accounts-in"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTable]:
    running = RunningTable(tmp_path_factory.mktemp("accounts"))
    running.config.write_text(running.config.read_text() + "limits: {epoch_attempts: 2}\n")
    running.start()
    yield running
    running.abandon()


def feed(running: RunningTable, name: str, count: int) -> None:
    keys = [f"{name}{n}" for n in range(count)]
    running.feed((key, {"id": key, "region": "north", "at": 1, "balance": 1.5}) for key in keys)


def test_epoch_that_was_given_up_is_retried_after_the_repair(running: RunningTable):
    # A record whose partition cannot be a folder is a dead letter, so the obstacle comes once the records are
    # tagged: where the partition's folder has to be there is a file. No privilege helps against that.
    writer = running.run_file()["pids"]["writer"][0]
    os.kill(writer, signal.SIGSTOP)
    feed(running, "a", 50)
    running.until_shown(lambda status: status["records"]["uncommitted"]["inserts"] == 50)
    blocked = running.table / "north"
    blocked.write_text("in the way")
    os.kill(writer, signal.SIGCONT)
    running.until_shown(lambda status: status["coordinator"]["halted"], 180.0)
    status = running.cli("status")
    assert status["coordinator"]["blocked_epoch"] == 1
    [halted] = [text for text in status["warnings"] if text.startswith("halted: ")]
    assert "epoch 1 could not be written in 2 attempts" in halted
    assert "north" in halted, "the cause is named"
    assert "`tidemark epoch retry 1`" in halted
    assert "2 attempts" in running.cli("flush", "--timeout", "1s", code=1)["error"]
    assert "that is epoch 1" in running.cli("epoch", "retry", "7", code=2)["error"]
    coordinator = running.run_file()["pids"]["coordinator"]
    blocked.unlink()
    assert running.cli("epoch", "retry", "1") == {"epoch": 1, "attempt": 3}
    # On a busy machine the 50 records were tagged in two transactions, and the second one is in epoch 2.
    assert running.cli("flush", "--timeout", "240s")["epoch"] in (1, 2)
    assert {row["id"] for row in running.rows()} == {f"a{n}" for n in range(50)}
    assert running.run_file()["pids"]["coordinator"] == coordinator
    after = running.cli("status")
    assert (after["coordinator"]["halted"], after["coordinator"]["blocked_epoch"]) == (None, None)
    assert "was not given up" in running.cli("epoch", "retry", "2", code=2)["error"]
    assert running.cli("verify")["agrees"]


def test_input_that_was_deleted_unread_stops_its_lane_alone_until_it_is_skipped(running: RunningTable):
    feed(running, "a", 50)
    running.cli("flush", "--timeout", "240s")
    running.cli("pause")
    running.until_shown(lambda status: status["paused"]["paused"])
    # One that runs hears of the pause with its next renewal, and might read on until then; a new one hears of
    # it with the first answer, before it reads anything.
    running.kill("assigner")
    kafka = {"bootstrap.servers": running.run_file()["kafka"]}
    admin, reader = AdminClient(kafka), Consumer({**kafka, "group.id": "test"})
    lost, kept = TopicPartition(INPUT, 0), TopicPartition(INPUT, 1)
    position = reader.get_watermark_offsets(lost, 60.0)[1]
    read_before = reader.get_watermark_offsets(kept, 60.0)[1]
    feed(running, "b", 50)
    # -1: up to the end, as retention would.
    deleted = admin.delete_records([TopicPartition(INPUT, 0, -1)])
    start = next(iter(deleted.values())).result(60.0).low_watermark
    sent = reader.get_watermark_offsets(kept, 60.0)[1] - read_before
    reader.close()
    assert start - position + sent == 50
    assert start > position
    # What a living reader has fetched already is not lost: only a new one has to ask for it.
    running.kill("assigner")
    assigner = running.run_file()["pids"]["assigner"]
    running.cli("resume")
    running.until_shown(lambda status: status["stopped_lanes"])
    status = running.cli("status")
    (stopped,) = status["stopped_lanes"]
    assert (stopped["topic"], stopped["partition"], stopped["offset"]) == (INPUT, 0, position)
    assert stopped["reason"] == "deleted"
    assert f"starts at offset {start} (its low watermark)" in " ".join(status["warnings"])
    metric = f'stopped_lane_seconds{{offset="{position}",partition="0",reason="deleted",'
    running.until(lambda: metric in running.metrics(), 120.0)
    told = running.cli("flush", "--timeout", "240s", code=2)["error"]
    assert f"{INPUT}[0] is not read any further than offset {position} (deleted)" in told
    # The other partition goes on, and nothing is skipped by itself.
    running.until(lambda: len(running.rows()) == 50 + sent, 240.0)
    place = ("--topic", INPUT, "--partition", "0", "--offset")
    assert "stands at offset" in running.cli("input", "skip", *place, str(start), code=2)["error"]
    done = running.cli("input", "skip", *place, str(position))
    assert (done["first"], done["last"]) == (position, start - 1)
    (letter,) = running.cli("dead-letter", "list", "--reason", "skipped")["dead_letters"]
    assert f"{start - position} offsets, {position} to {start - 1}, were deleted" in letter["detail"]
    feed(running, "c", 50)
    running.cli("flush", "--timeout", "240s")
    assert running.cli("status")["stopped_lanes"] == []
    ids = {row["id"] for row in running.rows()}
    assert {f"{name}{n}" for name in "ac" for n in range(50)} <= ids
    assert len(ids) == 100 + sent
    assert running.run_file()["pids"]["assigner"] == assigner
    assert running.cli("verify")["agrees"]
    assert running.stop() == 0
