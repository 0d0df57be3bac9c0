"""A child of `careful_lanes.ChildReader` that reads from nowhere, and dies where its configuration says: the
number of an offset; "exits": it cannot even begin. It fetches 100 records ahead, unless it reads them alone.
"""

from __future__ import annotations

import os
import sys

from index_assigner.shuffle.careful_frames import Answer, Kind, Setup, Task, read_frame, write_frame
from stream_runtime.kafka.ports import Message

END = 700


def main() -> None:
    source, out = sys.stdin.buffer, sys.stdout.buffer
    setup = read_frame(source, Setup)
    assert setup is not None
    if setup.config == "exits":
        sys.exit(3)
    deadly = int(setup.config)
    while (task := read_frame(source, Task)) is not None:
        at, alone = task.first, task.records_alone
        while at < END:
            count = 1 if alone else 10
            if at <= deadly < at + (1 if alone else 100):
                os.abort()
            if alone:
                write_frame(out, Answer(Kind.DECODING, at))
                alone -= 1
            found = [
                Message(task.topic, task.partition, at + n, None, b"v", (("h", b"1"),)) for n in range(count)
            ]
            write_frame(out, Answer.taken(found))
            at += count
        write_frame(out, Answer(Kind.DONE, at + 5))


if __name__ == "__main__":
    main()
