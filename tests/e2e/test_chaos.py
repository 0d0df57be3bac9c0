"""The short kill campaign: every failpoint of every service, and a drawn part of all other faults, on one
table under load. `make chaos` runs the long one; docs/chaos.md says what is watched and what is compared.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from random import Random

import pytest

from tests.chaos.campaign import Round, Settings
from tests.chaos.schedule import short

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ.get("TIDEMARK_SEED", "17452"))


def say(text: str) -> None:
    """Shown with -s, and when the test fails."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# Not an error like other warnings: shown in the summary.
@pytest.mark.filterwarnings("default:full disks were NOT tested:UserWarning")
def test_every_failpoint_and_the_rest_of_the_faults_leave_whole_commits_alone(tmp_path: Path):
    settings = Settings(tmp_path, SEED, patience=2.0)
    with Round(settings, say) as world:
        for step in short(Random(SEED), world.disks.keys()):
            world.run(step)
        world.finish()
    if not world.disks:
        warnings.warn("full disks were NOT tested: this user may not mount one", UserWarning, stacklevel=1)
