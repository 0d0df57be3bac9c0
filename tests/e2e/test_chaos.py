"""The short kill campaign: every failpoint of every service's own process, and of all other faults (those in
Spark's tasks among them) what there is time for.

One table under load. `make chaos` runs the long one; docs/chaos.md says what is watched and compared.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from random import Random

import pytest

from stream_runtime.clock import SystemClock
from tests.chaos.campaign import Round, Settings
from tests.chaos.schedule import more, must

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ.get("TIDEMARK_SEED", "17452"))
# No step begins later than so long after the first one; what must be done is done, however long it takes.
FAULTS_S = 130.0


def say(text: str) -> None:
    """Shown with -s, and when the test fails."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# Not an error like other warnings: shown in the summary.
@pytest.mark.filterwarnings("default:full disks were NOT tested:UserWarning")
def test_every_failpoint_and_the_rest_of_the_faults_leave_whole_commits_alone(tmp_path: Path):
    random, clock = Random(SEED), SystemClock()
    with Round(Settings(tmp_path, SEED, patience=2.0), say) as world:
        end_s = clock.monotonic_s() + FAULTS_S
        for step in must(random):
            world.run(step)
        for step in more(random, world.disks.keys()):
            if clock.monotonic_s() < end_s:
                world.run(step)
            else:
                say(f"NOT DONE, no time left: {' + '.join(map(str, step))}")
        world.finish()
        for role, found in world.exits().items():
            say(f"ended unprovoked: {role} {dict(found)}")
    if not world.disks:
        warnings.warn("full disks were NOT tested: this user may not mount one", UserWarning, stacklevel=1)
