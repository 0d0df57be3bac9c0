"""`python -m tests.compose`: the containers as an operator runs them, with most of them killed on the way.

Builds the images, starts everything, streams a month of flights, kills services and containers meanwhile,
and then has the table judged by hudi-rs, by Hudi on Spark and by `tidemark verify`. Exit code 0 also when no
container engine can be had, which the last line then says; 1 when anything does not hold with one that can.
Leaves nothing running and nothing behind but the cache outside the checkout, build/containers and the Debian
packages of an engine that it installed. On an engine that was there already the base image and the build's
cache stay, too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.compose import figures
from tests.compose.engine import Engine, NoEngineError, check_builds, check_runs, provide_engine
from tests.compose.faults import FAULTS, Faults, Survived, committed_epoch
from tests.compose.stack import CONFIG, ROOT, SERVICES, WAREHOUSE, Stack, StackError
from tidemark.stream_runtime.platform.broker_files import free_ports

MONTHS: Final = 1
# The flights take 112 s then, all kills 85 s on two busy cores: they meet a stream, its end is near.
RATE: Final = 750
LIMIT_S: Final = 30 * 60
VERSION: Final = "test"
LOGS: Final = ROOT / "build" / "compose-test"
_BUILD_S: Final = 900.0
_HEALTHY_S: Final = 900.0
_FEED_S: Final = 600.0
_JUDGE_S: Final = 400.0
_PORTS: Final = ("KAFKA", "COORDINATOR", "WEB", "SPARK", "PROMETHEUS", "GRAFANA")
_HAS_OUR_CODE: Final = "import importlib.util as u; print(u.find_spec('tidemark') is not None)"


class OverdueError(RuntimeError):
    """The test took longer than its limit."""


_started_s = time.monotonic()


def say(text: str) -> None:
    """One line of progress, with the seconds since the start."""
    print(f"compose-test: [{time.monotonic() - _started_s:4.0f} s] {text}", flush=True)


def main() -> int:
    """Parses, provides an engine, runs, cleans up."""
    parser = argparse.ArgumentParser(prog="compose-test", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--months", type=int, default=MONTHS, help=f"months of flights (default: {MONTHS})")
    parser.add_argument("--rate", type=int, default=RATE, help=f"records a second (default: {RATE})")
    parser.add_argument("--limit", type=int, default=LIMIT_S, help=f"seconds for all (default: {LIMIT_S})")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, _overdue)
    signal.signal(signal.SIGTERM, _ended)
    signal.alarm(options.limit)
    try:
        engine = provide_engine(say)
    except NoEngineError as error:
        return _skipped(error)
    try:
        return _run(engine, options)
    except NoEngineError as error:
        return _skipped(error)
    except (StackError, OverdueError, subprocess.SubprocessError, OSError) as error:
        say(f"FAILED: {error}")
        return 1
    finally:
        signal.alarm(0)
        engine.close()


def _skipped(error: NoEngineError) -> int:
    print(f"compose-test: SKIPPED, no container engine could be started or used: {error}", flush=True)
    return 0


def _overdue(*_: Any) -> None:
    raise OverdueError("longer than the limit allows")


def _ended(*_: Any) -> None:
    raise OverdueError("ended by SIGTERM")


def _run(engine: Engine, options: argparse.Namespace) -> int:
    random = Random(time.time_ns())
    project = f"tidemark-test-{random.randrange(1 << 32):08x}"
    ports = dict(zip(_PORTS, free_ports(len(_PORTS), random), strict=True))
    settings = {
        "TIDEMARK_IMAGE_PREFIX": project,
        "TIDEMARK_VERSION": VERSION,
        "TIDEMARK_FEED_MONTHS": str(options.months),
        "TIDEMARK_FEED_RATE": str(options.rate),
        "PYTHON": sys.executable,
        **{f"TIDEMARK_{name}_PORT": str(port) for name, port in ports.items()},
    }
    stack = Stack(engine, project, settings)
    try:
        _play(engine, stack, project, options.months)
    except BaseException:
        signal.alarm(0)
        stack.save_logs(LOGS)
        say(f"the containers' logs are in {LOGS.relative_to(ROOT)}")
        raise
    finally:
        signal.alarm(0)
        stack.end_asking()
        _clean_up(engine, stack, project)
    say("passed")
    return 0


def _play(engine: Engine, stack: Stack, project: str, months: int) -> None:
    begun_s = time.monotonic()
    say("building the images")
    try:
        stack.script("build", timeout_s=_BUILD_S)
    except (StackError, subprocess.TimeoutExpired):
        _check_base(engine)
        raise
    built_s = time.monotonic()
    check_runs(engine, f"{project}/service:{VERSION}")
    say("starting everything")
    up_s = time.monotonic()
    stack.script("--", "up", "--detach", "--no-build", timeout_s=_HEALTHY_S)
    stack.wait_healthy(SERVICES, _HEALTHY_S)
    seconds = {"images built in": built_s - begun_s, "all healthy after": time.monotonic() - up_s}
    watch = figures.MemoryWatch(stack, (*SERVICES, "feeder"))
    try:
        seconds["first commit after"] = _wait_for_first_commit(stack, up_s)
        _check_workers(stack)
        survived = _kill_all(stack)
        _wait_for_feeder(stack)
        dead_letters = _settle(stack)
    finally:
        memory = watch.stop()
        if watch.timeouts:
            say(f"the engine did not say in time what memory is used, {watch.timeouts} times")
    restarts = int(stack.state("feeder")["RestartCount"])
    _judge(stack, months, dead_letters, restarts)
    say("figures:")
    for line in figures.table(figures.image_sizes(stack, project, VERSION), memory, seconds):
        say(line)
    for each in survived:
        when = "while flights came in" if each.streaming else "after the last flight"
        what = "next commit" if each.committed else "nothing left to commit"
        say(f"  {each.fault.kind.value}: {each.fault.service}, {when}: {what} after {each.seconds:.0f} s")


def _check_base(engine: Engine) -> None:
    """Raises NoEngineError when the build failed for want of a base image, or of an engine that runs it."""
    asked = os.environ.get("TIDEMARK_BASE_IMAGE")
    if asked:
        check_runs(engine, asked)
        return
    official = re.search(r"\$\{TIDEMARK_BASE_IMAGE:-([^}]*)\}", (ROOT / "docker-compose.yml").read_text())
    check_builds(engine, [*([official[1]] if official else []), "tidemark-base-python:bookworm"])


def _wait_for_first_commit(stack: Stack, up_s: float) -> float:
    """Seconds since the start."""
    stack.wait(
        lambda: committed_epoch(stack.status() or {}) > 0, _HEALTHY_S, lambda: "no epoch was committed"
    )
    return time.monotonic() - up_s


def _check_workers(stack: Stack) -> None:
    """Both workers run an executor, and have our code from the driver alone."""
    page = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/json/').read().decode())"
    cluster = json.loads(stack.exec("spark-master", "python3.11", "-IS", "-c", page))
    used = {worker["host"]: worker["coresused"] for worker in cluster["workers"]}
    if used != {"spark-worker-1": 1, "spark-worker-2": 1}:
        raise StackError(f"not one core used on each of two workers: {used}")
    for worker in used:
        if stack.exec(worker, "python3.11", "-c", _HAS_OUR_CODE).strip() != "False":
            raise StackError(f"{worker} has Tidemark's code installed: nothing is proved about shipping it")
    say("both Spark workers write, with the code that the driver sent")


def _kill_all(stack: Stack) -> list[Survived]:
    faults = Faults(stack, say)
    return [faults.survive(fault) for fault in FAULTS]


def _wait_for_feeder(stack: Stack) -> None:
    def ended() -> bool:
        state = stack.state("feeder")["State"]
        return not state["Running"] and not state["Restarting"] and state["ExitCode"] == 0

    say("waiting for the feeder's end")
    stack.wait(ended, _FEED_S, lambda: "the feeder has not sent all")


def _settle(stack: Stack) -> int:
    """All in and committed; the number of dead letters."""
    stack.wait_healthy(SERVICES, _HEALTHY_S)
    stack.exec("coordinator", "tidemark", "flush", "-c", CONFIG, "--timeout", "180s", timeout_s=200)
    verified = stack.exec("coordinator", "tidemark", "verify", "-c", CONFIG, "--full", timeout_s=200)
    say(f"tidemark verify, in the coordinator's container: {' '.join(verified.split())[:160]}")
    status = json.loads(stack.exec("coordinator", "tidemark", "status", "-c", CONFIG, "--json"))
    return int(status["records"]["dead_letters"])


def _judge(stack: Stack, months: int, dead_letters: int, feeder_restarts: int) -> None:
    """Copies the table out and asks `judge`, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="tidemark-compose-") as scratch:
        source = f"{stack.container('coordinator')}:{WAREHOUSE}/flights"
        stack.docker("cp", source, scratch, timeout_s=_JUDGE_S)
        work = Path(scratch) / "spark"
        work.mkdir()
        command = [sys.executable, "-m", "tests.compose.judge", f"{scratch}/flights", str(work)]
        done = subprocess.run(
            [*command, "--months", str(months)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_JUDGE_S,
            check=False,
        )
    for line in done.stdout.splitlines():
        say(f"  {line}")
    if done.returncode != 0:
        raise StackError(f"the judges do not agree (code {done.returncode})")
    expected = int(done.stdout.split("dead letters expected: ")[1].split()[0])
    # A feeder that Kafka's end made start again may have sent a batch twice, broken records too.
    most = expected * (2 if feeder_restarts else 1)
    say(f"  dead letters: {dead_letters} (feeder started again {feeder_restarts} times)")
    if not expected <= dead_letters <= most:
        raise StackError(f"{dead_letters} dead letters, not {expected}")


def _clean_up(engine: Engine, stack: Stack, project: str) -> None:
    """Containers, networks, volumes; on an engine that is not ours the images, too."""
    say("removing containers and volumes")
    try:
        stack.script("down", "--volumes", "--yes", timeout_s=300)
    except (StackError, subprocess.SubprocessError) as error:
        say(f"could not remove them: {error}")
    if not engine.own:
        names = [f"{project}/{name}:{VERSION}" for name in figures.IMAGES]
        stack.docker("image", "rm", *names, check=False, timeout_s=300)


if __name__ == "__main__":
    sys.exit(main())
