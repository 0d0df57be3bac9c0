"""What docs/deploy-compose.md says of containers, measured: image sizes, time to start, memory of each."""

from __future__ import annotations

import re
import subprocess
import threading
from typing import Final

from tests.compose.stack import Stack, StackError

IMAGES: Final = ("kafka", "service", "spark", "writer")
_EVERY_S: Final = 15.0
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_MEMORY: Final = re.compile(r"([0-9.]+)([KMG]?i?B) /")


class MemoryWatch:
    """The greatest memory of each container, in bytes, as the engine shows it (`docker stats`: without the
    page cache that could be given back at once), looked at every fifteen seconds on a thread of its own.
    `timeouts`: looks that the engine answered too late.
    """

    def __init__(self, stack: Stack, services: tuple[str, ...]) -> None:
        self._stack = stack
        self._services = services
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)
        self.greatest: dict[str, int] = {}
        self.timeouts = 0
        self._thread.start()

    def stop(self) -> dict[str, int]:
        """Ends it; bytes by service."""
        self._stopped.set()
        self._thread.join()
        return self.greatest

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            try:
                # All at once: each question is a process, and the engine takes two seconds to answer it.
                names = {self._stack.container(service): service for service in self._services}
                words = ("stats", "--no-stream", "--format", "{{.Container}} {{.MemUsage}}")
                said = self._stack.docker(*words, *names)
            except subprocess.TimeoutExpired:
                self.timeouts += 1
                continue
            except (StackError, OSError, ValueError):
                # Being killed is what this test does to containers.
                continue
            for line in said.splitlines():
                name, _, usage = line.partition(" ")
                service = names[name]
                self.greatest[service] = max(self.greatest.get(service, 0), memory_bytes(usage))


def memory_bytes(said: str) -> int:
    """Of `109.1MiB / 768MiB`; 0 for a container that does not run."""
    found = _MEMORY.search(said)
    return round(float(found[1]) * _UNITS[found[2]]) if found else 0


def image_sizes(stack: Stack, prefix: str, version: str) -> dict[str, int]:
    """Bytes by image, layers that images share counted in each."""
    return {
        name: int(stack.docker("image", "inspect", "--format", "{{.Size}}", f"{prefix}/{name}:{version}"))
        for name in IMAGES
    }


def table(images: dict[str, int], memory: dict[str, int], seconds: dict[str, float]) -> list[str]:
    """Lines for the log and docs/deploy-compose.md."""
    lines = [f"  {name}: {took:.0f} s" for name, took in seconds.items()]
    lines += [f"  image {name}: {size / 1e6:.0f} MB" for name, size in images.items()]
    lines += [f"  memory of {name}, at most: {used / (1 << 20):.0f} MiB" for name, used in memory.items()]
    return lines
