"""`tidemark assigner` with a defect: a record with `MARK` in its value is decoded for ever, by C code that
lets no other thread of Python run. The process that reads lanes apart has the same defect.

No record is known that does this: whichever did would be mended. All else is the product's, and its two
limits of time are shorter, so that a test need not wait for ten minutes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any, Final

from tidemark.cli.main import main
from tidemark.index_assigner.input import careful_lanes
from tidemark.index_assigner.shuffle import careful_child
from tidemark.record_formats import decode_bound
from tidemark.record_formats.plain_json import PlainJson
from tidemark.stream_runtime.kafka.ports import Message

MODULE: Final = "tests.integration.hanging_reader"
MARK: Final = b"never-ends"
DECODE_S: Final = 20.0
"""Of all lanes' batches together; without the mark they take a fraction of a second."""
SILENT_S: Final = 40.0
"""Of the child, which takes some seconds until it says its first word."""
_FOR_EVER_S: Final = 3_600


def plant() -> None:
    """The defect."""
    sound = PlainJson.decode

    def decode(self: PlainJson, messages: Sequence[Message], positions: Any) -> Any:
        if any(MARK in (message.value or b"") for message in messages):
            # Keeps the interpreter's lock, unlike `time.sleep`, and needs no processor, unlike a regex.
            ctypes.PyDLL(None).sleep(_FOR_EVER_S)
        return sound(self, messages, positions)

    PlainJson.decode = decode  # type: ignore[method-assign]


def shorten() -> None:
    """The limits of the assigner's own process."""
    decode_bound.DECODING._limit_s = DECODE_S
    careful_lanes._SILENT_S = SILENT_S  # type: ignore[misc]
    careful_lanes.ChildReader.__init__.__defaults__ = (None, MODULE)


if __name__ == "__main__":
    plant()
    if len(sys.argv) == 1:
        careful_child.main()
    else:
        shorten()
        sys.exit(main())
