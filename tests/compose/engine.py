"""A container engine for the test: one that answers already, or one of its own that leaves nothing behind.

Its own dockerd gets a socket, a data root and a network namespace of its own. Bridges, packet filter rules
and published ports are seen by nobody else and end with the namespace; and since nothing leads out of it,
what is built and run there is built and run without a network.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

PACKAGES: Final = ("docker.io", "docker-compose", "mmdebstrap", "iptables", "iproute2")
_NEEDED: Final = ("dockerd", "docker", "docker-compose", "mmdebstrap", "iptables", "ip", "unshare")
# What the engine takes by itself first; the others are for file systems that overlay cannot lie on.
_STORAGE_DRIVERS: Final = (None, "fuse-overlayfs", "vfs")
_APT_TIMEOUT_S: Final = 400.0
_START_TIMEOUT_S: Final = 90.0
_STOP_TIMEOUT_S: Final = 60.0
_ASK_TIMEOUT_S: Final = 30.0
_REASON_CHARS_MAX: Final = 300
# vfs has no layers: each image, and each container, is a whole copy of what it is made of.
_VFS_FREE_BYTES: Final = 30_000_000_000
_TABLE: Final = Path(__file__).resolve().parents[2] / "deploy" / "table"


class NoEngineError(RuntimeError):
    """No container engine can be had here; the message is the reason."""


class Engine:
    """`environment` reaches it. `own`: started here, ended by `close`."""

    def __init__(
        self,
        environment: dict[str, str],
        process: subprocess.Popen[bytes] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.environment = environment
        self._process = process
        self._folder = folder

    @property
    def own(self) -> bool:
        return self._process is not None

    def close(self) -> None:
        """Ends an engine that was started here, and removes all that it kept. Repeatable."""
        if self._process is not None:
            _end(self._process)
            self._process = None
        if self._folder is not None:
            _remove(self._folder)
            self._folder = None


def provide_engine(say: Callable[[str], None]) -> Engine:
    """Raises NoEngineError."""
    if _answers(dict(os.environ)):
        if not _says(["docker", "compose", "version"]) and shutil.which("docker-compose") is None:
            raise NoEngineError("an engine answers, but compose is missing: install docker-compose")
        _check_room(dict(os.environ))
        say("using the container engine that answers already")
        return Engine(dict(os.environ))
    if os.geteuid() != 0:
        raise NoEngineError("none answers, and starting one takes root")
    _install(say)
    reasons = []
    for driver in _STORAGE_DRIVERS:
        folder = Path(tempfile.mkdtemp(prefix="tidemark-engine-"))
        try:
            return _start(folder, driver, say)
        except NoEngineError as error:
            reasons.append(f"{driver or 'its default'} storage: {error}")
            _remove(folder)
        except BaseException:
            _remove(folder)
            raise
    raise NoEngineError("; ".join(reasons))


def _answers(environment: dict[str, str]) -> bool:
    return bool(_says(["docker", "version"], environment))


def _says(command: list[str], environment: dict[str, str] | None = None) -> str:
    """What the command prints; empty when it fails or there is no such command."""
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _check_room(environment: dict[str, str]) -> None:
    """Raises NoEngineError for the storage driver vfs on a disk that our images would fill."""
    said = _says(["docker", "info", "--format", "{{.Driver}} {{.DockerRootDir}}"], environment)
    driver, _, data_root = said.partition(" ")
    if driver != "vfs" or not Path(data_root).is_dir():
        return
    free = shutil.disk_usage(data_root).free
    if free < _VFS_FREE_BYTES:
        raise NoEngineError(
            f"storage driver vfs copies whole images, and {data_root} has {free / 1e9:.0f} GB free,"
            f" not {_VFS_FREE_BYTES / 1e9:.0f}"
        )


def _install(say: Callable[[str], None]) -> None:
    """Debian's packages, where they are missing."""
    missing = [tool for tool in _NEEDED if shutil.which(tool) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise NoEngineError(f"{', '.join(missing)} missing, and there is no apt-get to install them with")
    say(f"installing {', '.join(PACKAGES)} ({', '.join(missing)} missing)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # A service that a package would start is not wanted: the engine is started here.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        for command in (
            ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=200", "update"],
            [
                "apt-get",
                "-qy",
                "-o",
                "DPkg::Lock::Timeout=200",
                "install",
                "--no-install-recommends",
                *PACKAGES,
            ],
        ):
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_APT_TIMEOUT_S, check=False
            )
            if done.returncode != 0:
                raise NoEngineError(f"{' '.join(command[:2])} failed: {_last_line(done.stderr)}")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoEngineError(f"apt-get did not end: {error}") from None
    finally:
        if ours:
            policy.unlink(missing_ok=True)


def _start(folder: Path, driver: str | None, say: Callable[[str], None]) -> Engine:
    socket = f"unix://{folder}/docker.sock"
    daemon = [
        *(
            shutil.which("dockerd") or "dockerd",
            "--data-root",
            f"{folder}/data",
            "--exec-root",
            f"{folder}/exec",
        ),
        *("--host", socket, "--pidfile", f"{folder}/docker.pid"),
        *(("--storage-driver", driver) if driver else ()),
    ]
    log = folder / "dockerd.log"
    with log.open("wb") as out:
        # `unshare` and the shell are replaced: the process that is waited for is dockerd itself.
        process = subprocess.Popen(
            [*_leash(), "unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *daemon],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    environment = {**os.environ, "DOCKER_HOST": socket, "DOCKER_CONFIG": str(folder / "config")}
    environment.pop("DOCKER_CONTEXT", None)
    engine = Engine(environment, process, folder)
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not _answers(environment):
        if process.poll() is not None or time.monotonic() >= deadline_s:
            reason = _last_line(log.read_text(errors="replace"))
            _end(process)
            raise NoEngineError(f"dockerd did not start: {reason}")
        time.sleep(0.5)
    try:
        _check_room(environment)
    except NoEngineError:
        _end(process)
        raise
    say(f"started a container engine of its own{f' on {driver}' if driver else ''}")
    return engine


def _leash() -> list[str]:
    """A prefix that has the command ended when the test dies; each program that it becomes inherits that."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM"] if setpriv else []


def check_builds(engine: Engine, bases: Sequence[str]) -> None:
    """For after a failed build. Raises NoEngineError when there is none of the base images, which then could
    be neither pulled nor made, or the engine cannot run a container of it: our own files are not to blame.
    """
    for base in bases:
        if _says(["docker", "image", "inspect", "--format", "{{.Id}}", base], engine.environment):
            check_runs(engine, base)
            return
    missing = "" if shutil.which("mmdebstrap") else ", and mmdebstrap is missing"
    raise NoEngineError(f"no base image could be pulled or made (none of {', '.join(bases)}){missing}")


def check_runs(engine: Engine, image: str) -> None:
    """Raises NoEngineError when the engine starts but cannot run a container as ours are run, with a folder
    of this checkout in it.
    """
    command = [
        *("docker", "run", "--rm", "--init", "--read-only", "--cap-drop", "ALL", "--network", "bridge"),
        *("--memory", "64m", "--user", "10001:10001", "--security-opt", "no-new-privileges:true"),
        *("--mount", f"type=bind,source={_TABLE},target=/x,readonly"),
        *("--entrypoint", "test", image, "-f", "/x/flights.yaml"),
    ]
    try:
        done = subprocess.run(
            command, env=engine.environment, capture_output=True, text=True, timeout=120, check=False
        )
    except subprocess.TimeoutExpired:
        raise NoEngineError("an engine started, but a container did not end within two minutes") from None
    if done.returncode == 1 or "bind source path does not exist" in done.stderr:
        raise NoEngineError(f"the engine does not see this checkout: no {_TABLE}/flights.yaml in a container")
    if done.returncode != 0:
        raise NoEngineError(f"an engine started, but cannot run a container: {_last_line(done.stderr)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """dockerd stops its containers and containerd; what is left of its session after that is killed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _remove(folder: Path) -> None:
    """The folder, with whatever is still mounted below it let go."""
    with open("/proc/mounts") as mounts:
        below = [line.split()[1] for line in mounts if line.split()[1].startswith(f"{folder}/")]
    for mount in sorted(below, reverse=True):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-_REASON_CHARS_MAX:] if lines else "it said nothing"
