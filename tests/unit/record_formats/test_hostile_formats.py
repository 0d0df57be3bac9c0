"""Bad input of every format with a seeded generator: each record ends as a row or as a dead letter with a
reason that fits, the good one behind them is a row, and neither time nor memory run away.

Most records are of one seed, the same in each run, the last fourth of one that changes with
the commit, which is printed.
`TIDEMARK_HOSTILE_SEED` replays that, `TIDEMARK_HOSTILE_RECORDS` sets how many there are of each format.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.commit_seed import seed_of_run
from tests.hostile_formats import AVRO_KEYS, FORMATS, hostile

RECORDS = int(os.environ.get("TIDEMARK_HOSTILE_RECORDS", "3000"))
SEED = 7
MEMORY_MAX = 400 << 20
BATCH_S_MAX = 30.0
"""Of one core's time; the slowest batch of 50 took 1.1 s."""


@pytest.mark.parametrize("name", FORMATS)
def test_every_bad_record_ends_alone(name: str) -> None:
    drawn = seed_of_run("TIDEMARK_HOSTILE_SEED", name)
    for seed, records in ((SEED, RECORDS - RECORDS // 4), (drawn, RECORDS // 4)):
        command = [sys.executable, "-m", "tests.hostile_formats", name, str(seed), str(records)]
        # The seed comes first: whatever ends the process, it is known.
        sys.stdout.write(f"{name}: {records} bad records, seed {seed}\n")
        ended = subprocess.run(command, capture_output=True, text=True, timeout=1_200)
        assert ended.returncode == 0, f"seed {seed}: {ended.stderr[-3_000:]}"
        judge(name, seed, records, json.loads(ended.stdout))


def judge(name: str, seed: int, records: int, told: dict[str, Any]) -> None:
    """Of what the process says."""
    lines = [f"{len(told['tried'])} kinds, by kind:"]
    for kind, count in sorted(told["tried"].items()):
        lines.append(f"  {count:>6}  {kind}: {told['became'][kind]}")
    lines.append(f"  slowest batch {told['slowest_batch_s']:.2f} s, memory {told['memory_bytes'] >> 20} MiB")
    sys.stdout.write("\n".join(lines) + "\n")
    assert not told["wrong"], f"seed {seed}: {told['wrong'][:10]}"
    kinds = set(hostile(name).kinds)
    as_keys = {f"as a Kafka key: {kind}" for kind in kinds} if name in AVRO_KEYS else set()
    assert set(told["tried"]) == kinds | as_keys
    assert sum(told["tried"].values()) == records * (2 if as_keys else 1)
    assert not any("undecodable" in became for became in told["became"].values())
    assert told["slowest_batch_s"] < BATCH_S_MAX, f"seed {seed}: {told['slowest_kinds']}"
    assert told["memory_bytes"] < MEMORY_MAX, f"seed {seed}"
