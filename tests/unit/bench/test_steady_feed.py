"""Which phase of a bench a record belongs to."""

from __future__ import annotations

import numpy as np

from bench.steady_feed import in_phases


def test_a_record_belongs_to_the_phase_in_which_it_was_produced() -> None:
    phases = {"before": (10.0, 12.0), "create": (12.5, 14.0), "after": (20.0, 21.0)}
    produced_s = np.array([9.9, 10.0, 11.0, 12.0, 12.4, 13.0, 14.0])
    waits_s = np.array([50.0, 1.0, 3.0, 60.0, 70.0, 0.25, 80.0])

    found = in_phases(phases, produced_s, waits_s)

    assert found["before"]["records"] == 2
    assert (found["before"]["p50_s"], found["before"]["max_s"]) == (2.0, 3.0)
    assert (found["create"]["records"], found["create"]["max_s"]) == (1, 0.25)
    assert found["after"] == {"records": 0}
