"""CRC-32 of what is in run files: by ISA-L where its package is installed, else by zlib. Both give the same.

After a restart each image is compared with its checksum before its first use, all of a table's within its
first batches; ISA-L takes an eighth of zlib's time for that (docs/adr/0002-dependencies.md).
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Final


def _fastest() -> Callable[[bytes | memoryview], int]:
    try:
        found: Callable[[bytes | memoryview], int] = importlib.import_module("isal.isal_zlib").crc32
    except ImportError:
        return zlib.crc32
    return found


crc32: Final[Callable[[bytes | memoryview], int]] = _fastest()
