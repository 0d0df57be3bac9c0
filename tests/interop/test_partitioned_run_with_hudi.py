"""A table with a partitioned record index as a user makes it: `tidemark init`, a line for the index, `run`.

Real Kafka, and every service a process; writer and coordinator are killed on the way, partitions begin in
epochs, and Hudi on Spark upserts and deletes by RECORD_LEVEL_INDEX between epochs, with the options that
`tidemark table describe` prints. What Spark reads, and the entries that it reads in the metadata table, are
those of a plain model: a dictionary by (partition, key).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.run_without_spark import command_in
from tests.e2e.running_table import TIDEMARK, RunningTable
from tests.interop.judge import HudiJudge
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

ARROW = pa.schema([("id", pa.string()), ("day", pa.string()), ("at", pa.int64()), ("note", pa.string())])
KEYS = 40
Identity = tuple[str, str]
"""(partition, key)."""


class Events:
    """A seeded stream of rows and deletes in more and more partitions, and what the table must hold."""

    def __init__(self, seed: int) -> None:
        self.rows: dict[Identity, dict[str, Any]] = {}
        self.newest: dict[Identity, int] = {}
        self.refused = 0
        self.days = 3
        self._random, self._at = Random(seed), 0

    def take(self, count: int) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """(Kafka key, value): upserts, late ones, deletes that name a partition, and others."""
        for _ in range(count):
            dice, key = self._random.random(), f"k{self._random.randrange(KEYS)}"
            row = self.row(key, f"day-{self._random.randrange(self.days)}")
            if dice < 0.2:
                row["at"] -= self._random.randrange(30)
            if dice < 0.04:
                self.refused += 1
                yield key, {"id": key, "at": row["at"], "_deleted": True} if dice < 0.02 else None
                continue
            gone = 0.15 < dice < 0.3
            self.apply(row, gone)
            yield key, {**row, "_deleted": gone}

    def row(self, key: str, day: str) -> dict[str, Any]:
        self._at += 1
        return {"id": key, "day": day, "at": self._at, "note": f"{self._at}"}

    def apply(self, row: dict[str, Any], gone: bool = False) -> None:
        """Of equal ordering values the later arrival wins."""
        identity = row["day"], row["id"]
        if row["at"] < self.newest.get(identity, row["at"]):
            return
        self.newest[identity] = row["at"]
        self.rows.pop(identity, None)
        if not gone:
            self.rows[identity] = row


class UsersTable(RunningTable):
    """Configured as a user does who begins with the records of a topic."""

    starts_kafka = False

    def __init__(self, folder: Path, kafka: str) -> None:
        self.folder, self._process = folder, None
        self._command = command_in(folder)
        self.topic = f"events-{SystemIds().uuid()[:8]}"
        self.config, self.table = folder / "events.yaml", folder / "warehouse" / "events"
        self._kafka, self.events = kafka, Events(14)
        admin = AdminClient({"bootstrap.servers": kafka})
        [made] = admin.create_topics([NewTopic(self.topic, 2, 1)]).values()
        made.result()
        self.send(200)

    def run_file(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "state" / "events" / "run.json").read_text()))

    def send(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._kafka, "enable.idempotence": True, "log_level": 2})
        for key, value in self.events.take(count):
            content = None if value is None else json.dumps(value).encode()
            producer.produce(self.topic, content, key, partition=sum(key.encode()) % 2)
        assert producer.flush(120.0) == 0

    def ask(self, *words: str, code: int = 0) -> str:
        """What a command without `--json` says."""
        done = subprocess.run(
            [str(TIDEMARK), *words], capture_output=True, text=True, timeout=300, cwd=self.folder, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def configure(self) -> None:
        sample = ("init", "--topic", self.topic, "--bootstrap-servers", self._kafka, "--yes")
        self.ask(*sample, "--name", "events", "--key", "id", "--partition", "day", "--ordering", "at",
                 "--delete-field", "_deleted", "--out", "events.yaml")  # fmt: skip
        lines = self.config.read_text().splitlines()
        [at] = [number for number, line in enumerate(lines) if line.startswith("  # index: {kind: global")]
        lines[at] = "  index: {kind: partitioned, shards: 2, lanes: 2}"
        here = ["epoch: {interval: 500ms}", "services: {coordinator: '127.0.0.1:0', metrics: '127.0.0.1:0'}"]
        self.config.write_text("\n".join([*lines, *here]))

    def settle(self) -> None:
        """All that was sent is committed, and rows and index agree."""
        # A coordinator that was killed may not answer yet.
        self.until_shown(lambda status: True)
        self.cli("flush", "--timeout", "240s")
        assert self.cli("verify")["agrees"]
        assert self.cli("dead-letter", "list")["count"] == self.events.refused

    def begun(self) -> list[str]:
        """Data partitions with file groups in the index."""
        names = (self.table / ".hoodie/metadata/record_index").iterdir()
        found = (each.name.partition("record-index-")[2] for each in names)
        return sorted({each.rpartition("-0_")[0][:-5].replace("%2D", "-") for each in found if each})


@pytest.fixture
def users(kafka: EmbeddedKafka, tmp_path: Path) -> Iterator[UsersTable]:
    made = UsersTable(tmp_path, kafka.bootstrap_servers)
    yield made
    made.abandon()


def write_with_spark(judge: HudiJudge, users: UsersTable, operation: str, *identities: Identity) -> None:
    """A key once in a write (docs/partitioned-index.md)."""
    rows = [users.events.row(key, day) for day, key in identities]
    told = users.cli("table", "describe")["foreign_writer_options"]
    assert told["hoodie.index.type"] == "RECORD_LEVEL_INDEX"
    judge.write_as_told(users.table, pa.Table.from_pylist(rows, schema=ARROW), operation, told)
    for row in rows:
        users.events.apply(row, operation == "delete")


def check_by_spark(judge: HudiJudge, users: UsersTable) -> None:
    found = judge.snapshot(users.table, meta_columns=True)
    read = {(row["day"], row["id"]): {name: row[name] for name in ARROW.names} for row in found}
    assert len(read) == len(found), "a row is there twice"
    assert read == users.events.rows
    entries = judge._metadata_records(users.table)
    places = {(path, key): file_id for key, (path, file_id) in entries}
    assert len(places) == len(entries), "an entry is there twice"
    assert places.keys() == read.keys()
    assert all(row["_hoodie_file_name"].startswith(places[row["day"], row["id"]]) for row in found)


def test_a_table_that_a_user_runs_is_one_for_spark_too(judge: HudiJudge, users: UsersTable) -> None:
    users.configure()
    assert "unique in each data partition only" in users.ask("config", "check", "-c", "events.yaml")
    users.start()
    users.settle()
    assert users.begun() == ["day-0", "day-1", "day-2"]
    assert "6 shards in 3 data partitions" in users.ask("table", "describe", "-c", "events.yaml")
    (day, key), _ = next(iter(users.events.rows.items()))
    [found] = users.cli("lookup", key, "--partition", day)["found"]
    assert (found["partition_path"], found["shard"]) == (day, None)
    assert "name the partition" in users.cli("lookup", key, code=2)["error"]
    for role in ("writer", "coordinator"):
        # Each epoch begins partitions, and somebody dies over one of them.
        users.events.days += 2
        users.send(150)
        users.kill(role)
        users.send(50)
        users.settle()
    check_by_spark(judge, users)

    live = sorted(users.events.rows)
    ours = [live[0], live[-1]]
    write_with_spark(judge, users, "upsert", *ours, ("day-0", "of-spark"), ("day-spark", "k-spark"))
    # Rows of one partition in a DELETE (docs/partitioned-index.md).
    for identity in (live[1], live[-2]):
        write_with_spark(judge, users, "delete", identity)
    users.events.days += 1
    users.send(200)
    users.settle()
    check_by_spark(judge, users)
    # Spark finds rows and begun partitions of ours by the index, and what it deletes is gone.
    newest = sorted(key for day, key in users.events.rows if day == f"day-{users.events.days - 1}")
    write_with_spark(
        judge, users, "upsert", (f"day-{users.events.days - 1}", newest[0]), ("day-0", "of-spark")
    )
    write_with_spark(judge, users, "delete", (f"day-{users.events.days - 1}", newest[1]))
    check_by_spark(judge, users)
    assert users.cli("verify")["agrees"]
    assert users.stop() == 0
