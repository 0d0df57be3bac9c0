"""The reader that stands between the JVM's socket and PySpark's worker."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import pyspark
import pytest

from tidemark import stream_writer
from tidemark.stream_writer.spark_daemon import acknowledging


def _tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
    return near, far


def test_bytes_arrive_unchanged_and_the_original_stream_stays_usable() -> None:
    near, far = _tcp_pair()
    seen: list[bytes] = []

    def worker_main(infile: BinaryIO, outfile: BinaryIO) -> None:
        seen.append(infile.read(4))
        seen.append(infile.read(200_000))

    def send() -> None:
        near.sendall(b"head")
        near.sendall(b"x" * 200_000)

    sender = threading.Thread(target=send)
    sender.start()
    with far, near, os.fdopen(os.dup(far.fileno()), "rb", 65536) as stream:
        acknowledging(worker_main)(stream, stream)
        sender.join()
        near.sendall(b"next task")
        assert stream.read(9) == b"next task"
    assert seen == [b"head", b"x" * 200_000]


def test_worker_that_asks_to_end_is_passed_on() -> None:
    near, far = _tcp_pair()

    def worker_main(infile: BinaryIO, outfile: BinaryIO) -> None:
        raise SystemExit(-1)

    with near, far, os.fdopen(os.dup(far.fileno()), "rb") as stream, pytest.raises(SystemExit):
        acknowledging(worker_main)(stream, stream)


def test_workers_are_forked_with_their_tasks_imported_and_without_grpc_and_pandas() -> None:
    """gRPC's threads do not survive a fork; nothing that a worker runs may bring it in. pandas only costs."""
    script = (
        "import sys, gc; from tidemark.stream_writer import spark_daemon; spark_daemon.preload();"
        "assert 'tidemark.stream_writer.tasks' in sys.modules;"
        "assert gc.get_freeze_count() > 10_000;"
        "import pyarrow as pa; pa.array([1, None]);"
        "sys.exit(', '.join({'grpc', 'pandas'} & set(sys.modules)) or 0)"
    )
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.parametrize("installed", [True, False])
def test_archives_leave_the_path_unless_pyspark_is_in_them_alone(installed: bool) -> None:
    home = Path(pyspark.__file__).parent
    archives = [str(each) for each in (home / "python" / "lib").glob("*.zip")]
    code = Path(stream_writer.__file__).parents[3] / "libs"
    script = (
        f"import sys; sys.path += {[*archives, '/spark/jars/spark-core_2.12-3.5.7.jar', str(code)]!r};"
        f"sys.path += {[str(home.parent)] if installed else []!r};"
        "from tidemark.stream_runtime.platform.spark_daemon import drop_archives; drop_archives();"
        "import pyspark, py4j;"
        "print(sum(each.endswith(('.zip', '.jar')) for each in sys.path if 'python311' not in each))"
    )
    command = [sys.executable, "-I", "-S", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == ("0" if installed else str(len(archives))), done.stderr
    assert len(archives) == 2
