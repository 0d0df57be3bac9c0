"""What the `hoodie:` section of a configuration changes. Tidemark writes itself, so most of Hudi's write
options have nothing to act on: those are named in a warning, never dropped in silence.
"""

from __future__ import annotations

from typing import Final

from tidemark.config import TableConfigFile
from tidemark.errors import ErrorKind, TidemarkError

HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
URL_ENCODE: Final = "hoodie.datasource.write.partitionpath.urlencode"
TARGET: Final = "hoodie.parquet.max.file.size"
SERVED: Final = (HIVE_STYLE, URL_ENCODE, TARGET)
_TARGET_DEFAULT: Final = 120 << 20


class HoodieOptionError(TidemarkError):
    """A value in the `hoodie:` section that cannot be meant."""

    kind = ErrorKind.INVALID


def target_file_bytes(file: TableConfigFile) -> int:
    """Size that base files grow to. Raises HoodieOptionError."""
    text = file.hoodie.get(TARGET, str(_TARGET_DEFAULT))
    if not text.isdecimal() or int(text) == 0:
        raise HoodieOptionError(f"{file.file}: {TARGET} is {text!r}: give a positive number of bytes")
    return int(text)


def is_true(file: TableConfigFile, key: str) -> bool:
    """A switch as Hudi reads it: "true" in any case; missing is false."""
    return file.hoodie.get(key, "false").lower() == "true"


def without_effect(file: TableConfigFile) -> list[str]:
    """Keys of the section that change nothing here."""
    return sorted(file.hoodie.keys() - set(SERVED))
