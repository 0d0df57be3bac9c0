"""The short kill campaign: every failpoint of a service's own process that an epoch passes, some of those
that table services pass, and one of each other fault (those in Spark's tasks among them). All of it is done,
however long it takes.

One table under load, compacted, cleaned and archived meanwhile. The seed is another one in each commit, and
named at a failure: `TIDEMARK_SEED` replays it. It also draws the kind of index that the table has
(`index_kinds`), and `TIDEMARK_CHAOS_INDEX` names one. `make chaos` runs the long campaign; docs/chaos.md says
what is watched and compared.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from random import Random

import pytest

from tests.chaos.campaign import Round
from tests.chaos.index_kinds import drawn_kind
from tests.chaos.schedule import more, must
from tests.chaos.settings import Settings
from tests.chaos.tally import tally_lines
from tests.commit_seed import seed_of_run

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
# Each compaction starts processes, and at half of this the epochs would be stretched for it.
COMPACTS_AT = 8
# Each stops the epochs for half a minute.
INDEX_KILLS = 2
SEED = seed_of_run("TIDEMARK_SEED", "kill campaign")
KIND = drawn_kind(os.environ.get("TIDEMARK_CHAOS_INDEX"), SEED)


def say(text: str) -> None:
    """Shown with -s, and when the test fails."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


# Not an error like other warnings: shown in the summary.
@pytest.mark.filterwarnings("default:full disks were NOT tested:UserWarning")
def test_every_failpoint_and_the_rest_of_the_faults_leave_whole_commits_alone(tmp_path: Path):
    random = Random(SEED)
    say(f"TIDEMARK_SEED={SEED} TIDEMARK_CHAOS_INDEX={KIND.name} replays this run")
    # A view every few epochs: reading half of the time, as in the long campaign, takes a core from all else.
    settings = Settings(
        tmp_path,
        SEED,
        patience=4.0,
        rest=4.0,
        services=True,
        compacts_at=COMPACTS_AT,
        index=KIND,
        index_kills=INDEX_KILLS,
    )
    with Round(settings, say) as world:
        for step in [*must(random), *more(random, world.disks.keys())]:
            world.run(step)
        world.finish()
        for line in tally_lines(world.counts, world.points):
            say(line)
        for role, found in world.exits().items():
            say(f"ended unprovoked: {role} {dict(found)}")
    if not world.disks:
        told = (
            "full disks were NOT tested: this user may not mount one (unshare -Urm make e2e: docs/chaos.md)"
        )
        warnings.warn(told, UserWarning, stacklevel=1)
