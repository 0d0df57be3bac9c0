"""The limit of open files goes up as far as it may, and never down."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

# In a process of its own: a hard limit that was lowered cannot be raised again.
SCRIPT = """
import resource, sys
from tidemark.stream_runtime.platform.open_files import allow_open_files
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(allow_open_files(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard", "then"), [(256, 600, 600), (600, 600, 600), (300, 70_000, 65_536)])
def test_soft_limit_goes_up_to_the_hard_one_or_to_what_is_enough(soft: int, hard: int, then: int):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY:
        hard = min(hard, most)
        then = min(then, hard)
    command = [sys.executable, "-c", SCRIPT, str(soft), str(hard)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert [int(each) for each in said.stdout.split()] == [then, then, hard]
