"""What tests of the Spark engine give to merges of table services, and how they wait for one."""

from __future__ import annotations

import time
from pathlib import Path

from tidemark.hudi_format.table_services.operations import MergeOperation
from tidemark.stream_writer.table_services.bins import MergeBin, NumberedOperation, encode_bin


def merge_bin(folder: Path) -> bytes:
    """One operation on files that are not there."""
    operation = NumberedOperation(0, MergeOperation("p", "g", "1", None, (".g_1.log.1_0-0-0",), 0, 0))
    return encode_bin(
        MergeBin(str(folder), "no-token", "20260101000000000", True, "{}", 1 << 20, "", True, (operation,))
    )


def wait_for_file(file: Path, timeout_s: float) -> None:
    """Returns when the file is there."""
    end_s = time.monotonic() + timeout_s
    while not file.exists():
        assert time.monotonic() < end_s, f"no {file} after {timeout_s} s"
        time.sleep(0.02)
