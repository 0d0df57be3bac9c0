"""The servers of `rpc_world`, gRPC and HTTP, in a process of their own, whose memory is looked at."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.unit.stream_runtime.rpc_world import LOOPBACK, World
from tidemark.config import Address
from tidemark.stream_runtime.http_messages import text_answer
from tidemark.stream_runtime.http_server import start_http_server
from tidemark.stream_runtime.service_http import access_guard

_REPOSITORY = Path(__file__).parents[3]


class ServingProcess(NamedTuple):
    process_id: int
    rpc: Address
    http: Address

    def forget_peak(self) -> int:
        """Begins a new peak, which is what it has now: bytes."""
        Path(f"/proc/{self.process_id}/clear_refs").write_text("5")
        return self.peak_bytes()

    def peak_bytes(self) -> int:
        """The most memory that it had since the last `forget_peak`."""
        for line in Path(f"/proc/{self.process_id}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.process_id}/fd").iterdir()))


@contextmanager
def serving_process(folder: Path, *, tokens: bool, open_files: int = 0) -> Iterator[ServingProcess]:
    """`open_files`: how many it may have, 0 for as many as this process may."""
    command = [sys.executable, "-m", __name__, str(folder), str(int(tokens)), str(open_files)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=_REPOSITORY) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            rpc, http = process.stdout.readline().split()
            yield ServingProcess(process.pid, Address("127.0.0.1", int(rpc)), Address("127.0.0.1", int(http)))
        finally:
            process.stdin.close()


def _main() -> None:
    folder, tokens, open_files = Path(sys.argv[1]), sys.argv[2] == "1", int(sys.argv[3])
    if open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    made = World(folder, tokens=tokens)
    with made.ends:
        routes = {"/page": lambda _: text_answer(200, "seen"), "/healthz": lambda _: text_answer(200, "ok")}
        guard = access_guard(made.security.access, loopback=True)
        http = start_http_server(LOOPBACK, routes, guard=guard)
        made.ends.callback(http.close)
        sys.stdout.write(f"{made.server.address.port} {http.address.port}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    _main()
