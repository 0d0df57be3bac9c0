"""Which actions an archive file's rows have, said at the end of its footer (TABLE_SERVICES.md, section 6.2).

A start asks all files of an archive whether they have a replacecommit. The footer's statistics would answer
that, but have a row group for each 2 MiB of contents: those of ten million commits took 0.7 s to decode, and
120 MiB of memory. Parquet's footer ends with the key-value pairs of its writer. So our files say their
actions in such a pair, and its bytes are looked for at the end of the file, without decoding the rest.

The value is `<actions by commas> <their CRC-32 as 8 hexadecimal digits>`, for example
`clean,deltacommit 69ef79d3`. Where it is not found whole, the statistics answer: files by Hudi have none.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection
from typing import Final

import pyarrow as pa

ACTIONS_KEY: Final = "tidemark.actions"
TAIL_BYTES: Final = 4 << 10
"""So much of a file's end is read. Hudi's Avro schema, the other pair, has 700 bytes."""
_END: Final = b"PAR1"
_WORD: Final = re.compile(r"[a-z]+", re.ASCII)
# Thrift's compact protocol: a field of type binary is its header (0x18), its length, its bytes. Lengths below
# 128 are one byte.
_KEY: Final = b"\x18" + bytes([len(ACTIONS_KEY)]) + ACTIONS_KEY.encode() + b"\x18"
_LENGTH_MAX: Final = 127
# Behind the last pair up to the footer's end: the end of its struct, who wrote the file, and the order of
# each column. Contents, of which the footer's statistics have the least and the greatest, may hold a whole
# footer.
_BEHIND: Final = re.compile(rb"\x00\x18.parquet-cpp-arrow [ -~]+\x19.(\x1c\x00\x00)+\x00", re.DOTALL)


def said_actions(actions: Collection[str]) -> dict[str, str]:
    """The pair for a file's footer; none where a word is not a plain one, or there are too many of them."""
    words = ",".join(sorted(actions))
    value = f"{words} {zlib.crc32(words.encode()):08x}"
    if not all(map(_WORD.fullmatch, actions)) or len(value) > _LENGTH_MAX:
        return {}
    return {ACTIONS_KEY: value}


def read_actions(source: pa.NativeFile) -> frozenset[str] | None:
    """The actions that an archive file says it has; None when it does not say it."""
    size = source.size()
    source.seek(max(size - TAIL_BYTES, 0))
    tail = source.read(TAIL_BYTES)
    if not tail.endswith(_END):
        return None
    # The footer's length stands before the last four bytes. What is before the footer are contents.
    footer = int.from_bytes(tail[-8:-4], "little")
    _, found, rest = tail[-8 - footer : -8].rpartition(_KEY)
    if not found or not rest:
        return None
    value, behind = rest[1 : 1 + rest[0]], rest[1 + rest[0] :]
    words, _, checksum = value.rpartition(b" ")
    if not _BEHIND.fullmatch(behind) or checksum != b"%08x" % zlib.crc32(words):
        return None
    return frozenset(words.decode("ascii").split(","))
