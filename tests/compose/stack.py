"""The running set-up as the test handles it: compose's commands, containers by service, what they say."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.compose.engine import Engine

ROOT: Final = Path(__file__).resolve().parents[2]
CONFIG: Final = "/etc/tidemark/flights.yaml"
# What the containers' own command runs.
PYTHON: Final = (ROOT / "deploy/tidemark.sh").read_text().partition("exec ")[2].split()[0]
WAREHOUSE: Final = "/var/lib/tidemark/warehouse"
SERVICES: Final = (
    *("kafka", "coordinator", "assigner-1", "assigner-2"),
    *("spark-master", "spark-worker-1", "spark-worker-2", "writer"),
)
# Each look at containers starts a process of the engine's.
_POLL_S: Final = 2.0
_STATUS_S: Final = 60.0
# The command's client and its document, a line for each line that it is sent. To start `tidemark status` for
# each look would take a CPU second of a small machine, most of it for imports.
_SAY_STATUS: Final = """
import json, sys
from tidemark.config import load_config
from tidemark.console.admin_client import AdminClient
from tidemark.errors import TidemarkError
client = AdminClient(load_config(sys.argv[1]))
for _ in sys.stdin:
    try:
        print(json.dumps(client.status(50.0)), flush=True)
    except TidemarkError:
        print("null", flush=True)
"""
_COMMAND_S: Final = 120.0
_SAID_MAX: Final = 800
_END_S: Final = 20.0
# SIGKILL to what the container's init started; init ends with it, and the restart policy does the rest.
_KILL_MAIN: Final = (
    "import os,signal;"
    "[os.kill(int(p),signal.SIGKILL) for p in open('/proc/1/task/1/children').read().split()]"
)


class StackError(AssertionError):
    """The set-up did not do what the test waits for."""


class Stack:
    """One compose project on one engine. `settings` are variables of docker-compose.yml."""

    def __init__(self, engine: Engine, project: str, settings: dict[str, str]) -> None:
        self._environment = {**engine.environment, **settings, "COMPOSE_PROJECT_NAME": project}
        self._project = project
        self._containers: dict[str, str] = {}
        self._asking: subprocess.Popen[bytes] | None = None
        # What the last process that gave no answer had to say.
        self._said = ""

    def script(self, *arguments: str, timeout_s: float) -> None:
        """deploy/compose.sh, its output shown. Raises StackError, TimeoutExpired. What ends it early ends all
        that it started, too.
        """
        command = ["deploy/compose.sh", *arguments]
        code = run_whole(command, ROOT, self._environment, timeout_s)
        if code != 0:
            raise StackError(f"{' '.join(command)} ended with code {code}")

    def docker(self, *arguments: str, timeout_s: float = _COMMAND_S, check: bool = True) -> str:
        """The command's output. Raises StackError with what it said."""
        done = subprocess.run(
            ["docker", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if check and done.returncode != 0:
            raise StackError(f"docker {' '.join(arguments[:4])} …: {done.stderr.strip()[-_SAID_MAX:]}")
        return done.stdout

    def container(self, service: str) -> str:
        """The service's container, running or not: it stays the same one when it is killed and started again.
        Raises StackError when there is none.
        """
        if service not in self._containers:
            labels = (
                f"label=com.docker.compose.project={self._project}",
                f"label=com.docker.compose.service={service}",
            )
            listed = self.docker("ps", "-aq", "--filter", labels[0], "--filter", labels[1]).split()
            if len(listed) != 1:
                raise StackError(f"{len(listed)} containers of {service}, not one")
            self._containers[service] = listed[0]
        return self._containers[service]

    def state(self, service: str) -> dict[str, Any]:
        """What `docker inspect` says of the container."""
        return self.states([service])[service]

    def states(self, services: Sequence[str]) -> dict[str, dict[str, Any]]:
        """`state` of each of these, asked at once."""
        said = self.docker("inspect", *(self.container(each) for each in services))
        documents: list[dict[str, Any]] = json.loads(said)
        return dict(zip(services, documents, strict=True))

    def exec(self, service: str, *command: str, timeout_s: float = _COMMAND_S, check: bool = True) -> str:
        """Runs a command inside; its output."""
        return self.docker("exec", self.container(service), *command, timeout_s=timeout_s, check=check)

    def kill_process(self, service: str) -> None:
        """kill -9 of the service; its restart policy has to bring it back."""
        self.exec(service, PYTHON, "-IS", "-c", _KILL_MAIN, check=False)

    def kill_container(self, service: str) -> None:
        """The whole container, which stays down: as if its machine had died."""
        self.docker("kill", self.container(service))

    def start_container(self, service: str) -> None:
        """Brings back what `kill_container` took."""
        self.docker("start", self.container(service))

    def status(self) -> dict[str, Any] | None:
        """The document of `tidemark status`; None while nobody answers. For one thread: it is asked of a
        process in the coordinator's container, which lives as long as that does.
        """
        if self._asking is None:
            command = ("exec", "-i", self.container("coordinator"), PYTHON, "-c", _SAY_STATUS, CONFIG)
            self._asking = subprocess.Popen(
                ["docker", *command],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        document = _asked(self._asking, _STATUS_S)
        if document is None:
            self.end_asking()
            return None
        self._said = ""
        return document

    def end_asking(self) -> None:
        """Ends the process that `status` asks; the next question starts another. Repeatable."""
        if self._asking is not None:
            self._asking.kill()
            _, errors = self._asking.communicate()
            self._said = errors.decode(errors="replace").strip()[-_SAID_MAX:]
            self._asking = None

    def wait_healthy(self, services: Sequence[str], timeout_s: float) -> float:
        """Seconds until all are healthy. Raises StackError with those that are not."""
        waiting: dict[str, str] = {}

        def all_healthy() -> bool:
            waiting.clear()
            for service, said in self.states(services).items():
                state = said["State"]
                health = state.get("Health", {}).get("Status", state["Status"])
                if health != "healthy":
                    waiting[service] = health
            return not waiting

        return self.wait(all_healthy, timeout_s, lambda: f"not healthy: {waiting}")

    def wait(self, reached: Callable[[], bool], timeout_s: float, what: Callable[[], str]) -> float:
        """Seconds until `reached`. Raises StackError with what was waited for, and what a process that was to
        tell the status said instead.
        """
        started_s = time.monotonic()
        while not reached():
            if time.monotonic() - started_s > timeout_s:
                said = f"; the process that asks for the status said: {self._said}" if self._said else ""
                raise StackError(f"after {timeout_s:.0f} s: {what()}{said}")
            time.sleep(_POLL_S)
        return time.monotonic() - started_s

    def save_logs(self, folder: Path) -> None:
        """Every container's log as a file, for after the test."""
        folder.mkdir(parents=True, exist_ok=True)
        for service in (*SERVICES, "feeder", "prometheus"):
            try:
                name = self.container(service)
            except StackError:
                continue
            with (folder / f"{service}.log").open("wb") as out:
                subprocess.run(
                    ["docker", "logs", "--timestamps", name],
                    env=self._environment,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    timeout=_COMMAND_S,
                    check=False,
                )


def _asked(process: subprocess.Popen[bytes], timeout_s: float) -> dict[str, Any] | None:
    """What it says to one question; None: that nobody answers, or it does not say in time."""
    assert process.stdin is not None
    assert process.stdout is not None
    line = b""
    try:
        process.stdin.write(b"\n")
        process.stdin.flush()
        deadline_s = time.monotonic() + timeout_s
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline_s - time.monotonic()))
            part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                return None
            line += part
        document: dict[str, Any] | None = json.loads(line)
    except (OSError, ValueError):
        return None
    return document


def run_whole(command: Sequence[str], folder: Path, environment: dict[str, str], timeout_s: float) -> int:
    """The exit code of a command in a session of its own, of which nothing is left when this raises
    (TimeoutExpired, or what a signal handler raises).
    """
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True)
    try:
        return process.wait(timeout_s)
    except BaseException:
        _end_session(process)
        raise


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, time to clean up for all and not just the first of them, SIGKILL."""
    deadline_s = time.monotonic() + _END_S
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline_s:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
