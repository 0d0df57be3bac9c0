"""Records a table with everything that belongs to it: files, topics, ledger, caches. What is in a recording:
tests/golden/recorded/README.md.

    .venv/bin/python -m tests.golden.recipes.recorded_table OUTPUT

OUTPUT becomes a folder with `recording.tar.xz` and `facts.json`; it takes about five minutes. The product
that writes is the interpreter's: `PYTHONPATH=. /another/checkout/.venv/bin/python -m …` records with the code
of that checkout. Instants and ids are new each time, so a recording is kept, and not made again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from confluent_kafka import Producer

from tests.e2e.account_events import AccountEvents, check_against_model
from tests.e2e.running_table import SCHEMA as AVRO
from tests.e2e.running_table import RunningTable
from tests.golden.recipes.half_made_table import half_made
from tests.golden.recipes.live_fold import fold_reader, leftover
from tests.golden.recipes.product_commit import product_commit
from tests.golden.recipes.recorded_state import cache_content, topic_lines
from tests.interop.judge import HudiJudge
from tests.interop.native_commit import NativeWriter
from tests.interop.spark_operations import SparkOperations
from tests.interop.spark_session import start_spark
from tests.raw_producer import Codec, RawProducer, RawRecord, batch
from tidemark.config import TableConfigFile, load_config
from tidemark.config.run_file import resolve_addresses
from tidemark.console.admin_client import AdminClient
from tidemark.hudi_format.commit.foreign_writers import foreign_writer_options
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.index_assigner.assign_stage import table_identity
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.model import TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import find_java

SEED = 20_250_101
# Tombstones must still count, and the input topic still be there, however old the recording is.
FOR_EVER = "36500d"
RECORD_BYTES = 32_768
CONFIG = f"""\
table:
  name: accounts
  path: ./warehouse/accounts
  type: merge_on_read
  record_key: [id]
  partition: [region]
  ordering: at
  schema: accounts.avsc
  index: {{shards: 4, lanes: 2, tombstone_ttl: {FOR_EVER}}}
input: {{topics: [accounts-in], partitions: 2, start: latest, delete_field: gone, unknown_fields: error}}
limits: {{record_bytes: {RECORD_BYTES}}}
kafka: {{bootstrap.servers: embedded}}
state: {{path: ./state, memory: 128MiB, disk: 1GiB}}
epoch: {{interval: 300ms}}
services: {{coordinator: "127.0.0.1:0", metrics: "127.0.0.1:0", web: off}}
spark: {{spark.master: "local[2]", spark.driver.memory: 512m}}
"""
# Two snapshots of the fold, a minute and 60 epochs apart at least: the second one trims the topics.
EPOCHS_MAX = 400
INPUT = "accounts-in"
EPOCHS_BEFORE_THE_END = 3
WAIT_S = 120.0
SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("at", pa.int64()), ("balance", pa.float64())]
)
# Logs, unpacked libraries and what tells of processes that are gone.
NOT_RECORDED = ("state/logs", "state/kafka/node-1/tmp", "state/writer", "state/kafka/node-1/pid", "run.log")


class Recorder:
    """One table from its creation to its end by SIGKILL."""

    def __init__(self, folder: Path) -> None:
        self.running = RunningTable(folder)
        self.running.config.write_text(CONFIG)
        self.events = AccountEvents(SEED)
        self.folder = folder
        self.table = self.running.table

    def record(self) -> None:
        self._create_input()
        self.running.start()
        try:
            self._letters_to_replay()
            self._epochs(30)
            self.running.kill("assigner")
            self._epochs_until_trimmed()
            # From here on less than what ends in the next trimming: these entries stay in the topics.
            self._another_engine()
            self.running.cli("pause", "--reason", "recorded")
            self.running.cli("resume")
            self._more_letters()
            self._skipped()
            check_against_model(self.running, self.events)
            assert self.running.cli("verify", "--full")["agrees"]
            assert self.running.stop() == 0
            self._die_serving()
            self._die_decided()
        finally:
            self.running.abandon()

    def record_extension(self) -> None:
        """What formats got since the last whole recording: without Hudi on Spark between our epochs, and
        without input that is hard to take. Its topics are trimmed, and it has a rewind, tombstones and a
        letter to be replayed, so every test of recordings takes it.
        """
        self._create_input()
        self.running.start()
        try:
            self._letters_to_replay()
            self._epochs(2)
            self._epochs_until_trimmed()
            check_against_model(self.running, self.events)
            assert self.running.cli("verify", "--full")["agrees"]
            assert self.running.stop() == 0
            self._dropped_partition()
            self._another_writer()
            self._die_serving()
            self._die_decided()
        finally:
            self.running.abandon()

    def facts(self, extension: bool) -> dict[str, Any]:
        """What the input says the table must become, all of the input committed."""
        model = self.events.model
        more = {} if extension else {"more_reasons": ["record-too-large", "skipped"]}
        return {
            "rows": model.rows,
            "newest": model.newest,
            "broken": model.broken,
            "now": self.events.now,
            "replayable": 1,
            **more,
        }

    def _create_input(self) -> None:
        kafka = EmbeddedKafka(
            self.folder / "state" / "kafka", ensure_jars(KAFKA.name, find_java()), find_java().home
        )
        (self.folder / "state").mkdir(mode=0o700)
        config = load_config(self.running.config)
        with kafka:
            admin = ConfluentKafkaClient.from_config(_at(config, kafka)).admin()
            admin.create_topics([TopicSpec(INPUT, 2, config={"retention.ms": "-1"})])
            admin.close()

    def _letters_to_replay(self) -> None:
        """A record that becomes a row when `input.unknown_fields: drop` holds and it is replayed."""
        value = {
            "id": "unknown-field",
            "region": "north",
            "at": 1,
            "balance": 1.5,
            "note": "not in the schema",
        }
        self.running.feed([("unknown-field", value)])
        self.events.model.broken += 1

    def _more_letters(self) -> None:
        """One that was replayed and refused again; one with key, value and headers that are cut."""
        assert self.running.cli("dead-letter", "replay", "--reason", "unknown-field")["replayed"] == 1
        producer = Producer({"bootstrap.servers": self.running.run_file()["kafka"]})
        headers: list[tuple[str, str | bytes | None]] = [("large", b"h" * (80 << 10))]
        producer.produce(INPUT, b"v" * 2 * RECORD_BYTES, b"k" * 2 * RECORD_BYTES, headers=headers)
        assert producer.flush(60.0) == 0
        self.events.model.broken += 2
        self._epochs(1)

    def _skipped(self) -> None:
        """A batch that nobody can take in is passed over, and taken out of the topic: who reads the
        recording reads all of that.
        """
        address = self.running.run_file()["kafka"]
        with RawProducer(address) as producer:
            pieces = [RawRecord(b"\0" * 1_000_000) for _ in range(105)]
            offset = producer.send(INPUT, 0, batch(pieces, Codec.ZSTD))
        self.running.until_shown(lambda status: bool(status["stopped_lanes"]))
        place = ("--topic", INPUT, "--partition", "0", "--offset", str(offset))
        skipped = self.running.cli("input", "skip", *place)
        self.events.model.broken += 1
        self._epochs(1)
        config = resolve_addresses(load_config(self.running.config))
        admin = ConfluentKafkaClient.from_config(config).admin()
        admin.delete_records({TopicPartition(INPUT, 0): skipped["last"] + 1})
        admin.close()

    def _start_with(self, failpoint: str) -> None:
        os.environ[ENVIRONMENT_VARIABLE] = failpoint
        self.running.start()
        del os.environ[ENVIRONMENT_VARIABLE]

    def _epochs(self, count: int) -> None:
        for _ in range(count):
            self.running.feed(self.events.take(12))
            self.running.cli("flush", "--timeout", "240s")

    def _epochs_until_trimmed(self) -> None:
        """Until the decisions begin with a snapshot. A command for every epoch would take long."""
        epochs = TopicNames("accounts").epochs_partition
        client = ConfluentKafkaClient.from_config(resolve_addresses(load_config(self.running.config)))
        admin = client.admin()
        for _ in range(EPOCHS_MAX):
            seen = self._committed()
            self.running.feed(self.events.take(8))
            self.running.until(partial(self._is_behind, seen), 180.0)
            if admin.start_offset(epochs) > 0:
                admin.close()
                self.running.cli("flush", "--timeout", "240s")
                return
        raise AssertionError(f"nothing was trimmed in {EPOCHS_MAX} epochs")

    def _committed(self) -> int:
        with AdminClient(resolve_addresses(load_config(self.running.config))) as client:
            return int(client.status(WAIT_S)["last_commit"]["epoch"])

    def _is_behind(self, epoch: int) -> bool:
        return self.running.shows(lambda status: status["last_commit"]["epoch"] > epoch)

    def _another_engine(self) -> None:
        """Hudi on Spark upserts, deletes and compacts between our epochs: rewinds, a base file of its own."""
        scratch = self.folder.with_name("scratch")
        spark = start_spark(ensure_jars("hudi-spark"), scratch)
        judge = HudiJudge(spark, scratch)
        options = foreign_writer_options(str(self.table))
        model = self.events.model
        # A process of Hudi 1.2.0 whose first act is an upsert that compacts the metadata table fails.
        judge.snapshot(self.table)
        live = sorted(model.rows)
        changed = [{**model.rows[key], "at": self.events.now + 1, "balance": 0.25} for key in live[:5]]
        judge.upsert(self.table, pa.Table.from_pylist(changed, schema=SCHEMA), options)
        for row in changed:
            model.apply((row["id"], row))
        self._epochs(2)
        # An older tombstone of such a key would still count, which the model does not know.
        late_max, self.events.late_max = self.events.late_max, 1
        gone = [model.rows[key] for key in live[5:8] if key in model.rows]
        judge.delete(self.table, pa.Table.from_pylist(gone, schema=SCHEMA), options)
        for row in gone:
            # Removes what there is and leaves no ordering value behind (ARCHITECTURE.md 3.2).
            del model.rows[row["id"]]
            del model.newest[row["id"]]
        judge.compact(self.table, options)
        spark.stop()
        self._epochs(5)
        self.events.late_max = late_max

    def _dropped_partition(self) -> None:
        """Hudi on Spark makes a partition of one row and drops it: the next coordinator finds that right."""
        scratch = self.folder.with_name("scratch")
        spark = start_spark(ensure_jars("hudi-spark"), scratch)
        judge = HudiJudge(spark, scratch)
        judge.snapshot(self.table)
        operations = SparkOperations(judge, self.table, foreign_writer_options(str(self.table)))
        row = {"id": "of-spark", "region": "elsewhere", "at": self.events.now, "balance": 0.5}
        operations.write(rows := pa.Table.from_pylist([row], schema=SCHEMA), "upsert")
        operations.delete_partition("elsewhere", rows)
        operations.close()
        spark.stop()

    def _another_writer(self) -> None:
        """A commit by the format library alone, while nothing of ours runs: a rewind at the next start."""
        model = self.events.model
        changed = [
            {**model.rows[key], "at": self.events.now + 1, "balance": 0.25} for key in sorted(model.rows)[:3]
        ]
        writer = NativeWriter(self.table, TableSchema.from_avro(json.dumps(AVRO), "account"))
        writer.commit(pa.Table.from_pylist(changed, schema=SCHEMA))
        for row in changed:
            model.apply((row["id"], row))

    def _die_serving(self) -> None:
        """Everything is killed at once, so the next coordinator counts a death of each lane's reader."""
        self.running.start()
        self._epochs(1)
        self.running.stop(9)

    def _die_decided(self) -> None:
        """The coordinator freezes right after a decision; others tag on; then everything is killed."""
        self._start_with(f"after_commit_decided:{EPOCHS_BEFORE_THE_END}:stop")
        config = resolve_addresses(load_config(self.running.config))
        coordinator = psutil.Process(self.running.run_file()["pids"]["coordinator"][0])
        fold = fold_reader(config)
        end_s = time.monotonic() + WAIT_S
        while coordinator.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < end_s, self.running.said()
            self.running.feed(self.events.take(10))
            time.sleep(0.1)
        # What is tagged now belongs to no planned epoch. Leases last three seconds: this has to be quick.
        self.running.feed(self.events.take(40))
        while not leftover(fold):
            assert time.monotonic() < end_s, "nothing was tagged after the decision: record again"
            fold.poll(0.2)
        fold.close()
        self.running.feed(self.events.take(40))
        self.running.stop(9)


def _at(config: TableConfigFile, kafka: EmbeddedKafka) -> TableConfigFile:
    return dataclasses.replace(config, kafka=config.kafka.with_bootstrap_servers(kafka.bootstrap_servers))


def write_down(folder: Path, expected: Path) -> dict[str, Any]:
    """The topics, the fold and the cache as this code reads them; returns what was decided last.

    Kafka is started once more and ends in order, so that its indexes have the size of their content.
    """
    expected.mkdir()
    config = load_config(folder / "accounts.yaml")
    names = TopicNames("accounts")
    kafka = EmbeddedKafka(folder / "state" / "kafka", ensure_jars(KAFKA.name, find_java()), find_java().home)
    (folder / "state" / "kafka" / "node-1" / "pid").unlink(missing_ok=True)
    with kafka:
        config = _at(config, kafka)
        reader = fold_reader(config)
        (expected / "fold.json").write_bytes(reader.fold.snapshot())
        state = reader.fold.state
        reader.close()
        topics = [names.ledger, names.epochs, names.keyed, names.data, names.index, names.tombstones]
        lines = topic_lines(kafka.bootstrap_servers, [*topics, names.dead_letter, INPUT])
        (expected / "topics.jsonl").write_text("\n".join(lines) + "\n")
    assert state.planned is not None
    assert state.planned.instant is not None
    assert state.decided is not None
    identity = f"{table_identity(LocalStorage(folder / 'warehouse/accounts'), SystemIds())} 4"
    # A copy: opening it writes.
    copy = folder.with_name("cache")
    shutil.copytree(folder / "state" / "index-0", copy)
    content = json.dumps(cache_content(copy, identity), indent=0)
    (expected / "cache.json").write_text(content)
    return {
        "epoch": state.decided.epoch,
        "instant": state.planned.instant,
        "metadata_completion": state.decided.metadata_completion,
        "data_completion": state.decided.data_completion,
    }


def pack(folder: Path, expected: Path, archive: Path) -> None:
    half_made(folder / "accounts.yaml", half := folder.with_name("half-made"))
    for name in NOT_RECORDED:
        for path in (folder / name, folder / "state" / "kafka" / "node-1" / name):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    for log in (folder / "state" / "kafka" / "node-1").glob("*.log*"):
        log.unlink()
    with tarfile.open(archive, "w:xz", preset=9) as packed:
        packed.add(folder, "table", filter=_anonymous)
        packed.add(expected, "expected", filter=_anonymous)
        packed.add(half, "half-made", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main(output: Path, extension: bool) -> None:
    output.mkdir(parents=True)
    commit = product_commit()
    with tempfile.TemporaryDirectory(prefix="recording-") as place:
        folder, expected = Path(place) / "table", Path(place) / "expected"
        folder.mkdir()
        recorder = Recorder(folder)
        if extension:
            recorder.record_extension()
        else:
            recorder.record()
        decided = write_down(folder, expected)
        facts = {"commit": commit, "decided": decided, **recorder.facts(extension)}
        (output / "facts.json").write_text(json.dumps(facts, indent=0, sort_keys=True) + "\n")
        pack(folder, expected, output / "recording.tar.xz")
    sys.stdout.write(f"{output}: {(output / 'recording.tar.xz').stat().st_size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), "--extension" in sys.argv[2:])
