"""A table that a user runs and gives a secondary index: `tidemark run`, real Kafka, Spark as its writer. Its
judges are a model, Hudi on Spark, and the commands of a user.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient as KafkaAdmin
from confluent_kafka.admin import NewTopic

from tests.e2e.running_table import RunningTable
from tests.input_model import DELETE_FIELD, Event, InputModel, RandomStream, Row, Upsert, messages
from tests.interop.judge import HudiJudge
from tests.interop.test_secondary_index_of_epochs_with_hudi import CITIES, LITERALS
from tests.interop.verdict import assert_same_rows, without_meta
from tidemark.config import load_config
from tidemark.config.run_file import resolve_addresses
from tidemark.console.admin_client import AdminClient
from tidemark.hudi_format.table_config import TableType
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_writer.service import HERE_MAX

INDEX: Final = "by_city"
PARTITION: Final = f"secondary_index_{INDEX}"
NOBODY: Final = "nobody's"
BULK: Final = HERE_MAX // 2 + 100
"""Rows whose cities change in one epoch: an entry goes and one comes for each, more than a driver writes."""
_PARTITIONS: Final = 2
_SCHEMA: Final = {
    "type": "record",
    "name": "towns",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "region", "type": "string"},
        {"name": "ts", "type": "long"},
        {"name": "city", "type": ["null", "string"], "default": None},
    ],
}
ARROW: Final = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("city", pa.string())]
)
_CONFIG: Final = """\
table:
  name: {name}
  path: ./table
  type: {table_type}
  record_key: [id]
  partition: [region]
  ordering: ts
  schema: towns.avsc
  index: {{shards: 4, lanes: 2}}
input: {{topics: [{name}-in], partitions: 2, delete_field: {delete_field}}}
kafka: {{bootstrap.servers: "{kafka}"}}
state: {{path: ./state}}
epoch: {{interval: 500ms}}
services: {{coordinator: "127.0.0.1:0", metrics: "127.0.0.1:0"}}
spark:
  spark.master: local[2]
  spark.driver.memory: 512m
  spark.eventLog.enabled: "true"
  spark.eventLog.dir: {jobs}
"""


class CityStream(RandomStream):
    """Cities that many rows have, none, and cities of one row."""

    def row(self, key: str, ts: int) -> Row:
        city = self._random.choice((*CITIES, None, f"only {key} {self._ts}"))
        region = f"region-{self._random.randrange(self._regions)}"
        return {"id": key, "region": region, "ts": ts, "city": city}

    def newest(self, key: str, **more: Any) -> Row:
        """A row that is newer than all others."""
        self._ts += 1
        return {**self.row(key, self._ts), **more}

    def bulk(self) -> Iterator[Upsert]:
        """Every row of the bulk, with another city than it had. They are in a partition of their own: who
        asks for a few other rows does not read them.
        """
        self._ts += 1
        for number in range(BULK):
            city = f"bulk {number % 300} {self._ts}"
            yield Upsert({"id": f"bulk-{number}", "region": "bulk", "ts": self._ts, "city": city})


class CityTable(RunningTable):
    """Its topic, its `tidemark run`, and its model."""

    starts_kafka = False

    def __init__(self, folder: Path, kafka: str, table_type: TableType) -> None:
        self.folder, self._process, self._kafka = folder, None, kafka
        name = f"towns_{SystemIds().uuid()[:8]}"
        self.topic, self.config, self.table = f"{name}-in", folder / "towns.yaml", folder / "table"
        self._jobs = folder / "jobs"
        self._jobs.mkdir()
        (folder / "towns.avsc").write_text(json.dumps(_SCHEMA))
        self.config.write_text(
            _CONFIG.format(
                name=name,
                table_type=table_type.value.lower(),
                delete_field=DELETE_FIELD,
                kafka=kafka,
                jobs=self._jobs.as_uri(),
            )
        )
        self.model, self.stream = InputModel(), CityStream(14, keys=60)
        admin = KafkaAdmin({"bootstrap.servers": kafka})
        [made] = admin.create_topics([NewTopic(self.topic, _PARTITIONS, 1)]).values()
        made.result()

    # -- records

    def send(self, events: Sequence[Event]) -> None:
        """Produces them, for the model, too."""
        producer = Producer({"bootstrap.servers": self._kafka, "enable.idempotence": True, "log_level": 2})
        self.model.apply(events)
        for partition, part in messages(events, _PARTITIONS).items():
            for key, value in part:
                producer.produce(self.topic, value, key, partition=partition)
                producer.poll(0)
        assert producer.flush(120.0) == 0

    def random(self, count: int) -> None:
        self.send(list(self.stream.events(count)))

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Records come all the time, from before the block to behind it."""
        ends = threading.Event()

        def flow() -> None:
            while not ends.wait(0.05):
                self.random(40)

        self.random(40)
        thread = threading.Thread(target=flow)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
        self.random(40)

    def settle(self) -> None:
        """All that was sent is committed."""
        # A coordinator that was killed may not answer yet.
        self.until_shown(lambda status: True)
        with AdminClient(resolve_addresses(load_config(self.config))) as client:
            client.flush(180_000)

    def in_one_epoch(self, events: Sequence[Event]) -> None:
        """One epoch has all of them. Returns when it is open, or written already."""
        self.settle()
        [writer] = self.run_file()["pids"]["writer"]
        os.kill(int(writer), signal.SIGSTOP)
        try:
            # What comes while an epoch is open is what the next one has.
            self.send([Upsert(self.stream.newest("key-0"))])
            self.until_shown(lambda status: status["in_flight"]["epoch"])
            epoch = self._epoch()
            self.send(events)
            self.until_shown(lambda status: self._tagged(status) == self.model.received)
        finally:
            os.kill(int(writer), signal.SIGCONT)
        self.until(lambda: self._epoch() > epoch, 180.0)

    def jobs_of_newest_attempts(self, rows_min: int) -> int:
        """How many Spark jobs a writer ran for an attempt of the newest epoch with so many rows, at most: by
        Spark's own log.
        """
        jobs: Counter[tuple[int, str, Path]] = Counter()
        for log in self._jobs.iterdir():
            # The last line of a writer that was killed may be half a line.
            for line in log.read_text().splitlines(keepends=True):
                event: dict[str, Any] = json.loads(line) if line.endswith("\n") else {}
                if event.get("Event") == "SparkListenerJobStart":
                    # `epoch 12 attempt 1, 4000 rows in 2 tasks`
                    text = event["Properties"]["spark.job.description"]
                    found = re.search(r"epoch (\d+) attempt (\d+), (\d+) rows", text)
                    if found and int(found[3]) >= rows_min:
                        jobs[int(found[1]), found[2], log] += 1
        newest = max(epoch for epoch, _, _ in jobs)
        return max(count for (epoch, _, _), count in jobs.items() if epoch == newest)

    def _epoch(self) -> int:
        """The one that is open, else the last one."""
        found = 0

        def look(status: dict[str, Any]) -> bool:
            nonlocal found
            found = int(status["in_flight"]["epoch"] or status["last_commit"]["epoch"])
            return True

        self.until_shown(look)
        return found

    def _tagged(self, status: dict[str, Any]) -> int:
        counts = status["records"]
        return int(counts["committed"]["input"]) + int(counts["uncommitted"]["input"])


class CityJudge:
    """Hudi on Spark, which reads and writes the table as it is told to."""

    def __init__(self, judge: HudiJudge, table: CityTable) -> None:
        self._judge, self._table = judge, table
        self._groups: dict[str, tuple[str, str]] = {}

    def writes(self, **rows_of: Sequence[Row]) -> None:
        """Upserts and deletes with the options of `tidemark table describe`; in the model, too."""
        table = self._table
        told = table.cli("table", "describe")["foreign_writer_options"]
        for operation, rows in filter(itemgetter(1), rows_of.items()):
            given = pa.Table.from_pylist(list(rows), schema=ARROW)
            self._judge.write_as_told(table.table, given, operation, told)
            for row in rows:
                table.model.rows.pop(row["id"], None)
                if operation == "upsert":
                    table.model.rows[row["id"]] = row

    def finds(self, stage: str, *cities: str | None, is_kept: bool = True) -> None:
        """The rows of a scan of all files are those of the model. The rows of a city of one row, of three
        cities at once, and of each of ``cities`` are those that the scan has. ``is_kept``: no other files are
        read than those with the rows, else all of them.
        """
        keys_of = self._scanned(stage)
        everywhere = set(self._groups.values())
        assert len(everywhere) > 4
        only = sorted(city for city, keys in keys_of.items() if city is not None and len(keys) == 1)
        asked: list[list[str | None]] = [[only[0]], [only[-1], CITIES[2], NOBODY]]
        asked += [[city] for city in cities]
        for values in asked:
            expected = {key for value in values for key in keys_of.get(value, ())}
            found, files = self._look_up(values)
            assert found == expected, (stage, values, expected - found, found - expected)
            # Hudi looks nothing up for nulls.
            if is_kept and None not in values:
                assert files <= len({self._groups[key] for key in expected}) < len(everywhere), (
                    stage,
                    values,
                )
            else:
                assert files >= len(everywhere), (stage, values)

    def told(self, *options: str, values: Sequence[str | None]) -> None:
        """`tidemark lookup` with these options names the rows of these values, and where they are."""
        answer = self._table.cli("lookup", *options, "--limit", "10000")
        assert answer["next_page_token"] is None
        found = [
            (row.get("value", values[0]), row["key"], row["partition_path"], row["file_id"])
            for row in answer["found"]
        ]
        live = self._table.model.rows.items()
        expected = {(row["city"], key, *self._groups[key]) for key, row in live if row["city"] in values}
        assert len(found) == len(expected)
        assert set(found) == expected

    def _scanned(self, stage: str) -> dict[str | None, set[str]]:
        """City -> the keys of its rows."""
        model = self._table.model
        rows = self._judge.snapshot(self._table.table, meta_columns=True)
        assert_same_rows(without_meta(rows), model.live, stage)
        self._groups = {
            row["id"]: (row["_hoodie_partition_path"], row["_hoodie_file_name"].split("_")[0]) for row in rows
        }
        keys_of: dict[str | None, set[str]] = {}
        for key, row in model.rows.items():
            keys_of.setdefault(row["city"], set()).add(key)
        return keys_of

    def _look_up(self, values: Sequence[str | None]) -> tuple[set[str], int]:
        literals = [LITERALS["city"](value) for value in values if value is not None]
        condition = f"city IN ({', '.join(literals)})" if len(values) > 1 else f"city = {''.join(literals)}"
        condition = condition if literals else "city IS NULL"
        options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"}
        frame = self._judge._frame(self._table.table, options).select("id", "city").where(condition)
        rows, files = self._judge.rows_and_files(frame.select("id"))
        return {row["id"] for row in rows}, files
