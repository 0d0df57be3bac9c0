"""What the gauges measure is there: memory, descriptors and files that are planted show up."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.soak import gauges
from tests.soak.gauges import GROWN_UP_S, Disk, Gauges, allocated_bytes, jvms, process_figures
from tests.soak.heaps import Heaps, Jvm, live_bytes
from tidemark.stream_runtime.platform.java import find_java

HOLDER = """
import sys
kept = bytearray(int(sys.argv[1]))
files = [open(sys.executable, "rb") for _ in range(int(sys.argv[2]))]
print("ready", flush=True)
sys.stdin.read()
"""


def stats_of_holder(size: int, files: int) -> dict[str, float]:
    command = [sys.executable, "-c", HOLDER, str(size), str(files)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = process_figures({"assigner": [process.pid]})
        process.communicate()
    return found


def test_memory_and_descriptors_that_a_process_holds_are_measured():
    small, large = stats_of_holder(0, 0), stats_of_holder(32 << 20, 50)
    assert large["memory: assigner"] - small["memory: assigner"] > 30 << 20
    assert large["descriptors: assigner"] - small["descriptors: assigner"] == 50


def test_child_counts_with_its_parent_unless_it_has_a_role_itself():
    script = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'input()'], "
        "stdin=subprocess.PIPE); print(child.pid, flush=True); input(); child.communicate(b'\\n')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(GROWN_UP_S + 0.5)
        alone = process_figures({"run": [parent.pid], "coordinator": [child]})
        together = process_figures({"run": [parent.pid]})
        parent.communicate(b"\n")
    assert set(together) == {"memory: run", "descriptors: run"}
    assert together["memory: run"] > alone["memory: run"] > 0
    assert alone["memory: coordinator"] > 0


def test_process_that_is_gone_counts_nothing():
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        process.wait()
    assert process_figures({"assigner": [process.pid]}) == {}


def test_disk_is_what_is_allocated(tmp_path: Path):
    disk = Disk(tmp_path, tmp_path / "warehouse")
    before = allocated_bytes(disk)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "whole").write_bytes(os.urandom(1 << 20))
    with (tmp_path / "sparse").open("wb") as sparse:
        sparse.truncate(64 << 20)
    (tmp_path / "warehouse").mkdir()
    (tmp_path / "warehouse" / "left out").write_bytes(os.urandom(4 << 20))
    os.sync()
    assert 1 << 20 <= allocated_bytes(disk) - before < 2 << 20
    assert allocated_bytes(Disk(tmp_path)) - before >= 5 << 20


HOARDER = """
public class Hoarder {
    public static void main(String[] megabytes) throws Exception {
        byte[][] kept = new byte[Integer.parseInt(megabytes[0])][1 << 20];
        byte[][] garbage = new byte[Integer.parseInt(megabytes[1])][1 << 20];
        garbage = null;
        System.out.println("ready " + kept.length);
        System.in.read();
        System.out.println(kept.length);
    }
}
"""


def test_heap_is_what_a_jvm_still_holds(tmp_path: Path):
    java = find_java()
    heaps = Heaps(java.home)
    if not (heaps.can_be_measured and (java.home / "bin" / "javac").is_file()):
        pytest.skip(f"{java.home} has no jcmd or no javac")
    (tmp_path / "Hoarder.java").write_text(HOARDER)
    program = str(tmp_path / "Hoarder.java")
    command = [
        str(java.executable),
        "-Xmx128m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        program,
        "20",
        "30",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = jvms({"kafka": [process.pid]})
        held = heaps.collected(found)
        process.communicate(b"\n")
    assert found == [Jvm("kafka", process.pid)]
    assert 20 << 20 <= held["heap: kafka"] < 45 << 20
    assert heaps.collected(found) == {}, "it is gone"
    assert Heaps(tmp_path).collected(found) == {}, "nothing to ask with"


def test_what_a_request_holds_for_a_moment_is_not_what_a_heap_holds(tmp_path: Path):
    """Three looks; what lives at the first alone does not count, what is in all three does."""
    jcmd = tmp_path / "bin" / "jcmd"
    jcmd.parent.mkdir()
    jcmd.write_text(
        f"#!/bin/sh\necho look >> {tmp_path}/looks\n"
        f"[ $(wc -l < {tmp_path}/looks) = 1 ] && live=62 || live=48\n"
        'echo "Total 10 $live"\n'
    )
    jcmd.chmod(0o755)
    pauses: list[float] = []
    assert Heaps(tmp_path, pauses.append).collected([Jvm("kafka", 1)]) == {"heap: kafka": 48}
    assert pauses == [1.0, 1.0]


def test_live_bytes_are_the_total_of_the_histogram():
    lines = "   1:  10  800  [B (java.base@17)\nTotal          10            800\n"
    assert live_bytes(lines) == 800
    with pytest.raises(ValueError, match="no total"):
        live_bytes("nothing")


def test_a_broker_that_does_not_answer_for_a_moment_does_not_end_the_gauges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A minute in which it never answers lacks the figures of topics, which fails the soak."""

    def unanswered(*_: object) -> dict[str, float]:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(gauges, "kept_messages", unanswered)
    measured = Gauges(dict, {"here": Disk(tmp_path)}, "127.0.0.1:1", "orders", Heaps(tmp_path))
    assert list(measured._sample(0)) == ["disk: here"]
