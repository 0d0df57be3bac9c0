"""Runs one verification of the table in a process of its own (`child`).

Reading a table may take minutes. In the coordinator's process it would slow down all its threads (the GIL).
The process ends at the latest with the coordinator, or after `timeout_s`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any, Final

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.platform import child

_POLL_S: Final = 0.1
_GRACE_S: Final = 2.0
_LOG: Final = "verify.log"
_LINE_BYTES_MAX: Final = 2_000


class VerifyProcess:
    """Starts the process. In ``folder`` are its answer, its output (`verify.log`, of the last run only), and
    its temporary files.
    """

    def __init__(self, table: str, folder: Path, clock: Clock, timeout_s: float) -> None:
        self._table = table
        self._folder = folder
        self._clock = clock
        self._timeout_s = timeout_s

    def newest_line(self) -> str:
        """The last line of the process's output; "" if there is none."""
        try:
            with (self._folder / _LOG).open("rb") as log:
                log.seek(max(log.seek(0, os.SEEK_END) - _LINE_BYTES_MAX, 0))
                lines = log.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def run(self, stopped: threading.Event, full: bool = False) -> dict[str, Any]:
        """The document of `tidemark verify --json`, or {"error": text} when there was no verdict.

        Call it from a thread that lives as long as the coordinator: the process ends with that thread.
        """
        answer, log, scratch = (self._folder / name for name in ("answer.json", _LOG, "scratch"))
        try:
            # A process that was killed did not delete its temporary files.
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            answer.unlink(missing_ok=True)
            log.write_bytes(b"")
            command = [
                sys.executable,
                "-m",
                "tidemark.commit_coordinator.verification.child",
                self._table,
                "--answer",
                str(answer),
            ]
            if full:
                command.append("--full")
            process = child.spawn(command, log, environment={**os.environ, "TMPDIR": str(scratch)})
        except (OSError, StreamRuntimeError) as error:
            return {"error": f"the verification could not be started: {error}"}
        deadline_s = self._clock.monotonic_s() + self._timeout_s
        while process.poll() is None and self._clock.monotonic_s() < deadline_s and not stopped.is_set():
            self._clock.sleep(_POLL_S)
        late = process.poll() is None
        code = child.end(process, self._clock, _GRACE_S)
        if late:
            why = "the coordinator stops" if stopped.is_set() else f"verify.timeout, {self._timeout_s:.0f} s"
            return {"error": f"the verification was ended before it was done: {why}"}
        return _answer(answer, code, log)


def _answer(path: Path, code: int, log: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"error": f"the verification ended with code {code} and no answer; its output is in {log}"}
    return document
