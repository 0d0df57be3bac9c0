"""What the coordinator does in memory after a commit: history, file sizes, positions for trimming."""

from __future__ import annotations

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.commit_metadata import moved
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.epoch_protocol.committing import keyed_positions
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.state import CountedTagged
from tidemark.hudi_format.model import instant_to_ms


class CommitFollowUp:
    """A `CommitListener` that tells history, placement and trimmer of each commit."""

    def __init__(
        self, history: EpochHistory, placement: Placement, trimmer: Trimmer, inputs: InputPositions
    ) -> None:
        self._history = history
        self._inputs = inputs
        self._placement = placement
        self._trimmer = trimmer
        self._manifest: list[CountedTagged] = []

    def committing(self, planned: EpochPlanned, fold: Fold) -> None:
        """Copies the epoch's transactions and offsets from the fold, before the commit removes them."""
        state = fold.state
        self._manifest = fold.manifest(planned.through)
        self._history.cover(
            planned.epoch,
            self._manifest,
            moved(state.committed.keyed_next, keyed_positions(state, planned.through)),
            moved(self._inputs.committed(state), self._inputs.committed_by(state, planned.through)),
        )

    def committed(self, planned: EpochPlanned, report: Report | None) -> None:
        """Gives the trimmer the committed batches, and the placement the new file sizes."""
        self._trimmer.committed(self._manifest)
        self._manifest = []
        if report is not None:
            assert planned.instant is not None, "an epoch with a report has an instant"
            self._placement.committed(report, instant_to_ms(planned.instant))
            self._history.timed(planned.epoch, planned.attempt, report.timings_ms)

    def rewinding(self) -> None:
        """Stops leases of file groups until the files are listed anew: a group may have been replaced."""
        self._placement.suspend()
