"""`tidemark table create`, killed by -9 at every moment, then run again: one table and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_a_creation_killed_at_any_moment_is_finished_by_the_next(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.integration.killed_creation", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    unhurt, *killed = [json.loads(line) for line in done.stdout.splitlines()]
    assert (unhurt["code"], len(unhurt["files"]) > 10) == (0, True)
    assert len(killed) > 50
    for nth, each in enumerate(killed, 1):
        assert each["files"] == unhurt["files"], nth
        # Killed behind the last of its work, it left a table that is there already.
        assert each["code"] == (1 if each["whole"] else 0), nth
    assert sum(each["whole"] for each in killed) < len(killed) // 4
