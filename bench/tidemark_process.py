"""One `tidemark run` of the benchmark: its configuration, its process, and the processes below it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from bench.feeder import PARTITIONS
from bench.hudi_settings import INDEX_SHARDS
from tidemark.config.run_file import read_run_file
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform import child

TABLE: Final = "bench"
TOPIC: Final = "bench-input"
COMMAND: Final = (sys.executable, "-m", "tidemark.cli.entry")
_READY_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 60.0
# Of tens of millions of rows, a compaction or a comparison with the files takes most of it.
_COMMAND_TIMEOUT_S: Final = 3_600.0
_SCHEMA: Final = {
    "type": "record",
    "name": "bench",
    "fields": [
        {"name": name, "type": ["null", kind], "default": None}
        for name, kind in (
            ("id", "string"),
            ("region", "string"),
            ("ts", "long"),
            ("amount", "double"),
            ("quantity", "int"),
            ("status", "string"),
            ("note", "string"),
        )
    ],
}


def configuration(interval: str, lanes: int) -> dict[str, Any]:
    """The table's YAML document; paths are relative to its file."""
    return {
        "table": {
            "name": TABLE,
            "path": "./table",
            "type": "merge_on_read",
            "record_key": ["id"],
            "partition": ["region"],
            "ordering": "ts",
            "schema": "bench.avsc",
            "index": {"kind": "global", "shards": INDEX_SHARDS, "lanes": lanes},
        },
        "input": {"topics": [TOPIC], "format": "json", "partitions": PARTITIONS, "start": "earliest"},
        "kafka": {"bootstrap.servers": "embedded"},
        "state": {"path": "./state", "memory": "512MiB", "disk": "10GiB"},
        "epoch": {"interval": interval, "max_bytes": "256MiB"},
        "services": {"coordinator": "127.0.0.1:0", "metrics": "127.0.0.1:0"},
        "spark": {"spark.master": "local[2]"},
    }


class TidemarkRun:
    """`tidemark run` in a folder of its own, ended by its process id."""

    def __init__(
        self, folder: Path, settings: Mapping[str, Any], schema: Mapping[str, Any] = _SCHEMA
    ) -> None:
        """`schema`: the table's, as Avro's document."""
        self._schema = schema
        self.folder = folder
        self.table = folder / "table"
        self.file = folder / "bench.yaml"
        self.settings = settings
        self._state = folder / "state"
        self._process: subprocess.Popen[bytes] | None = None

    def write_configuration(self) -> None:
        """The table's configuration and schema, for a command before the run."""
        self.folder.mkdir(exist_ok=True)
        self.file.write_text(yaml.safe_dump(dict(self.settings), sort_keys=False))
        (self.folder / "bench.avsc").write_text(json.dumps(self._schema))

    def __enter__(self) -> TidemarkRun:
        self.write_configuration()
        self._process = child.spawn([*COMMAND, "run", "-c", str(self.file)], self.folder / "run.log")
        return self

    def __exit__(self, *_: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            child.end(process, SystemClock(), _STOP_TIMEOUT_S)

    @property
    def bootstrap(self) -> str:
        """Kafka's address. Waits for the run to be up; raises RuntimeError with the log when it does not."""
        until_s = time.perf_counter() + _READY_TIMEOUT_S
        while time.perf_counter() < until_s:
            found = read_run_file(self._state)
            if found is not None and found.pids.get("kafka"):
                return found.kafka
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"tidemark run did not come up:\n{self.last_log_lines()}")

    def roles(self) -> Mapping[str, list[int]]:
        """Role -> process ids, the supervisor's among them; nothing while one of them is being started."""
        found = read_run_file(self._state)
        if found is None or not all(found.pids.values()):
            return {}
        return {**found.pids, "supervisor": [found.run]}

    def command(self, *arguments: str) -> Any:
        """A `tidemark … -c FILE --json` command's document. Raises RuntimeError when it fails."""
        done = subprocess.run(
            [*COMMAND, *arguments, "-c", str(self.file), "--json"],
            capture_output=True,
            text=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"tidemark {' '.join(arguments)}: {done.stderr.strip()} {done.stdout[:2000]}")
        return json.loads(done.stdout)

    def last_log_lines(self, count: int = 40) -> str:
        """The end of what `tidemark run` printed."""
        path = self.folder / "run.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:]) if path.is_file() else ""
