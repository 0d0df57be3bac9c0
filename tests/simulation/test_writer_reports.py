"""Write statuses that come late, twice, unanswered, or from a driver that was replaced: one commit each."""

from __future__ import annotations

import pytest

from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script

_BEFORE = """
setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
round
round
"""
_WRITTEN = """
feed up k1 d0 5
round
round
round
round
"""
_AFTER = """
round
round
round
round
"""
_REFUSED = "ReportWritten is refused: epoch 1 attempt 1"

LATE_FOR_A_COMMITTED_EPOCH = f"""{_BEFORE}
call-fault writer ReportWritten late
{_WRITTEN}{_AFTER}
late-calls
{_AFTER}
"""

# The driver runs the attempt again, that fails for good, and the attempt is voided; then the report arrives.
LATE_FOR_A_VOIDED_ATTEMPT = f"""{_BEFORE}
call-fault writer ReportWritten late
{_WRITTEN}
fail-job
step writer
step coordinator
late-calls
{_AFTER}
"""

FROM_A_REPLACED_DRIVER = f"""{_BEFORE}
freeze writer 1 call Report
{_WRITTEN}
replace writer
{_AFTER}
thaw writer
zombie writer
{_AFTER}
"""

# The successor is in the middle of the same attempt: whoever comes first is taken.
FROM_A_REPLACED_DRIVER_WHILE_ITS_SUCCESSOR_WRITES = f"""{_BEFORE}
freeze writer 1 call Report
{_WRITTEN}
replace writer
freeze writer 1 call Report
step writer
thaw writer
zombie writer
{_AFTER}
thaw writer
{_AFTER}
"""


@pytest.mark.parametrize(
    "text",
    [LATE_FOR_A_COMMITTED_EPOCH, LATE_FOR_A_VOIDED_ATTEMPT, FROM_A_REPLACED_DRIVER],
    ids=["committed", "voided", "replaced"],
)
def test_a_report_for_an_attempt_that_is_over_is_refused(text: str) -> None:
    outcome = run_script(parse(text))
    assert outcome.violations == ()
    assert outcome.epochs == 1
    assert [line for line in outcome.log if _REFUSED in line], "the script does not reach its report any more"


@pytest.mark.parametrize("fault", ["twice", "answer"])
def test_a_report_that_arrives_twice_or_whose_answer_is_lost_commits_once(fault: str) -> None:
    outcome = run_script(parse(f"{_BEFORE}\ncall-fault writer ReportWritten {fault}\n{_WRITTEN}{_AFTER}"))
    assert outcome.violations == ()
    assert outcome.epochs == 1
    assert [line for line in outcome.log if f"calls ReportWritten: {fault}" in line]


def test_of_two_drivers_that_report_one_attempt_the_first_is_taken() -> None:
    outcome = run_script(parse(FROM_A_REPLACED_DRIVER_WHILE_ITS_SUCCESSOR_WRITES))
    assert outcome.violations == ()
    assert outcome.epochs == 1
    frozen = {line.split()[0] for line in outcome.log if "is frozen at call ReportWritten" in line}
    assert frozen == {"writer#0", "writer#1"}, "both drivers have to be about to report"
