"""The demo's table with its stream sent slowly: something to look at while it runs."""

from __future__ import annotations

import threading
import time
import urllib.parse
import urllib.request
from json import loads
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer

from tests.e2e.running_table import RunningTable
from tidemark.demo.flights import EventStream
from tidemark.demo.folder import prepare_folder

_MONTHS = 2
_PIECE = 100


class FlightsTable(RunningTable):
    """Two months of flights. `feed_slowly` sends on a thread of its own until `stop_feeding`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = prepare_folder(folder, "merge_on_read", Random(folder.name), lambda _: None)
        text = self.config.read_text().replace("\nservices:\n", '\nservices:\n  web: "127.0.0.1:0"\n')
        self.config.write_text(text)
        self.table = folder / "warehouse" / "flights"
        self._process = None
        self._enough = threading.Event()
        self._feeder: threading.Thread | None = None
        self.sent = 0

    def page(self) -> str:
        return f"http://{self.run_file()['web']}"

    def ask(self, path: str, **parameters: str) -> dict[str, Any]:
        """A document of the page's server."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(f"{self.page()}{path}{query}", timeout=60) as answer:
            return dict(loads(answer.read()))

    def feed_slowly(self, records_per_s: int) -> None:
        self._enough.clear()
        self._feeder = threading.Thread(target=self._feed, args=(records_per_s,), daemon=True)
        self._feeder.start()

    def stop_feeding(self) -> None:
        self._enough.set()
        if self._feeder is not None:
            self._feeder.join(60.0)
            assert not self._feeder.is_alive()

    def send(self, *values: bytes) -> None:
        """Records of ours among the flights."""
        producer = self._producer()
        for value in values:
            producer.produce("flights", value, partition=0)
        assert producer.flush(60.0) == 0

    def abandon(self) -> None:
        self._enough.set()
        super().abandon()

    def _producer(self) -> Producer:
        return Producer({"bootstrap.servers": self.run_file()["kafka"], "log_level": 2})

    def _feed(self, records_per_s: int) -> None:
        producer, started_s = self._producer(), time.monotonic()
        for batch in EventStream(_MONTHS).batches():
            for first in range(0, len(batch.records), _PIECE):
                for key, value in batch.records[first : first + _PIECE]:
                    producer.produce("flights", value, key)
                self.sent += _PIECE
                producer.flush(60.0)
                due_s = started_s + self.sent / records_per_s
                if self._enough.wait(max(due_s - time.monotonic(), 0.0)):
                    return

    def _is_complete(self) -> bool:
        if not (self.folder / "state" / "run.json").exists() or not self.run_file().get("web"):
            return False
        try:
            flow = self.ask("/api/overview")["flow"]
        except OSError:
            return False
        return bool(flow["writer"]) and flow["shufflers"] == 1 and flow["assigners"] == 1
