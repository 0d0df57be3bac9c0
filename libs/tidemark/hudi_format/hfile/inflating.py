"""Inflates the gzip members of a block: by ISA-L where its package is installed, else by zlib.

Both give the same bytes and find the same damage; ISA-L needs half the time (docs/adr/0002-dependencies.md).
Both release the interpreter's lock meanwhile.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from tidemark.hudi_format.errors import CorruptFileError

_GZIP: Final = 31


class _Inflater(Protocol):
    """Inflates one member, of which `unused_data` is what follows."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


def _libraries() -> dict[str, Any]:
    """The modules that there are, the fastest first. They have one interface."""
    try:
        return {"isal": importlib.import_module("isal.isal_zlib"), "zlib": zlib}
    except ImportError:
        return {"zlib": zlib}


_LIBRARIES: Final = _libraries()
_ERRORS: Final[tuple[type[Exception], ...]] = tuple(library.error for library in _LIBRARIES.values())
INFLATERS: Final[Mapping[str, Callable[[int], _Inflater]]] = {
    name: library.decompressobj for name, library in _LIBRARIES.items()
}
"""Name of the library -> its decompressobj. The first one is used."""
_USED: Final = next(iter(INFLATERS))


def gunzip(stored: bytes, expected_size: int, name: str, offset: int, library: str = _USED) -> bytes:
    """Decompresses all gzip members of a payload (Hadoop's gzip stream may write several).

    Raises CorruptFileError, which names the file `name` and the block's `offset`.
    """
    parts: list[bytes] = []
    size = 0
    while stored:
        member = INFLATERS[library](_GZIP)
        try:
            part = member.decompress(stored, max(expected_size - size, 0) + 1)
        except _ERRORS as error:
            raise CorruptFileError(
                f"{name}: block at offset {offset} does not decompress: {error}"
            ) from error
        size += len(part)
        if not member.eof or size > expected_size:
            raise CorruptFileError(
                f"{name}: block at offset {offset} is not {expected_size} bytes of whole gzip members"
            )
        parts.append(part)
        stored = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)
