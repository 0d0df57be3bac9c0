"""Hudi on Spark as a second reader of the long campaign, in a process of its own: it answers when asked.

Run as a module it is that process: each line on its stdin names a table; the answer is a line with the name
of a JSON file that holds the rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.input_model import Row

_ANSWER: Final = "rows in "
_END_S: Final = 30.0


class SparkReader:
    """Starts at once and is warm after its first answer. For one thread."""

    def __init__(self, scratch: Path) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self._log = (scratch / "spark-reader.log").open("ab")
        command = [sys.executable, "-m", "tests.chaos.spark_reader", str(scratch)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def read_rows(self, table: Path) -> list[Row]:
        """All live rows as Hudi on Spark reads them. Raises OSError when the process is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{table}\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                file = Path(line.removeprefix(_ANSWER).strip())
                rows: list[Row] = json.loads(file.read_text())
                file.unlink()
                return rows
        raise OSError(f"the Spark reader ended: see {self._log.name}")

    def close(self) -> None:
        """Ends the process. Repeatable."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_END_S)
        self._log.close()


def serve(scratch: Path) -> None:
    """Until stdin ends."""
    from tests.interop.judge import HudiJudge
    from tests.interop.spark_session import start_judge

    spark = start_judge(scratch, memory="900m")
    judge = HudiJudge(spark, scratch)
    for number, line in enumerate(sys.stdin):
        file = scratch / f"rows-{number}.json"
        file.write_text(json.dumps(judge.snapshot(Path(line.strip()))))
        sys.stdout.write(f"{_ANSWER}{file}\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
