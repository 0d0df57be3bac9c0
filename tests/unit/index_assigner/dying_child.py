"""A child of `careful_lanes.ChildReader` that reads from nowhere, and dies where its configuration says: the
number of an offset; "exits", "killed": it cannot even begin; "silent": it says nothing; "babbles": it says
what is no answer; "ended": who ends the service ends it while it reads; "behind": it dies of what it fetched
behind the batch that it has; "hangs", a file and an offset: it never ends there, and writes its process id
into the file when it is there. It fetches 100 records ahead, unless it reads them alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from tidemark.index_assigner.input.careful_frames import Answer, Kind, Setup, Task, read_frame, write_frame
from tidemark.stream_runtime.kafka.ports import Message

END = 700


def main() -> None:
    source, out = sys.stdin.buffer, sys.stdout.buffer
    setup = read_frame(source, Setup)
    assert setup is not None
    if setup.config == "exits":
        sys.exit(3)
    if setup.config == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if setup.config == "silent":
        time.sleep(600)
    if setup.config == "babbles":
        out.write(b"\0\0\0\3say")
        out.flush()
        time.sleep(600)
    if setup.config == "behind":
        write_frame(out, Answer(Kind.READING))
        write_frame(out, Answer(Kind.FETCHED))
        os.abort()
    if setup.config == "ended":
        write_frame(out, Answer(Kind.READING))
        os.kill(os.getpid(), signal.SIGTERM)
    hangs = setup.config.startswith("hangs")
    deadly = int(setup.config.rpartition(" ")[2])
    while (task := read_frame(source, Task)) is not None:
        write_frame(out, Answer(Kind.READING))
        at, alone = task.first, task.records_alone
        while at < END:
            count = 1 if alone else 10
            is_near = at <= deadly < at + (1 if alone else 100)
            if is_near and not hangs:
                os.abort()
            if alone:
                write_frame(out, Answer(Kind.DECODING, at))
                alone -= 1
            if is_near:
                Path(setup.config.split(" ")[1]).write_text(str(os.getpid()))
                time.sleep(600)
            found = [
                Message(task.topic, task.partition, at + n, None, b"v", (("h", b"1"),)) for n in range(count)
            ]
            write_frame(out, Answer.taken(found))
            at += count
        write_frame(out, Answer(Kind.DONE, at + 5))


if __name__ == "__main__":
    main()
