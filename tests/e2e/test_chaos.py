"""The short kill campaign: every failpoint of every service's own process, and one of each other fault (those
in Spark's tasks among them). All of it is done, however long it takes.

One table under load. The seed is another one in each run, and named at a failure: `TIDEMARK_SEED` replays it.
`make chaos` runs the long campaign; docs/chaos.md says what is watched and compared.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from random import Random

import pytest

from tests.chaos.campaign import Round, Settings
from tests.chaos.schedule import more, must
from tidemark.stream_runtime.ids import SystemIds

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ.get("TIDEMARK_SEED") or SystemIds().random().getrandbits(31))


def say(text: str) -> None:
    """Shown with -s, and when the test fails."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# Not an error like other warnings: shown in the summary.
@pytest.mark.filterwarnings("default:full disks were NOT tested:UserWarning")
def test_every_failpoint_and_the_rest_of_the_faults_leave_whole_commits_alone(tmp_path: Path):
    random = Random(SEED)
    say(f"TIDEMARK_SEED={SEED} replays this run")
    # A view every few epochs: reading half of the time, as in the long campaign, takes a core from all else.
    with Round(Settings(tmp_path, SEED, patience=2.0, rest=4.0), say) as world:
        for step in [*must(random), *more(random, world.disks.keys())]:
            world.run(step)
        world.finish()
        for role, found in world.exits().items():
            say(f"ended unprovoked: {role} {dict(found)}")
    if not world.disks:
        told = (
            "full disks were NOT tested: this user may not mount one (unshare -Urm make e2e: docs/chaos.md)"
        )
        warnings.warn(told, UserWarning, stacklevel=1)
