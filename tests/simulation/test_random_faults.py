"""Ten epochs under dice: crashes, thaws, broker faults, other engines; the table equals a model.

`TIDEMARK_SEED=n` replays one seed; a failure names its seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from testing.kafka import EndFault
from tests.simulation.commit_path import CommitPath
from tests.simulation.other_engine import OtherEngine
from tests.simulation.scripted_epochs import check_traces
from tests.simulation.scripted_tagger import TABLE, Row, Tagged
from tidemark.epoch_protocol.batches import DataOp
from tidemark.hudi_format.errors import FencedOutError, LockLostError, TimelineConflictError
from tidemark.hudi_format.publication.locate import read_lock
from tidemark.hudi_format.table_config import TableType
from tidemark.ledger_client.errors import SupersededError
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.stream_runtime.kafka.ports import KafkaError

SEEDS = [int(os.environ["TIDEMARK_SEED"])] if "TIDEMARK_SEED" in os.environ else list(range(6))
EPOCHS = 10
STEPS_MAX = 150
DIED = (
    FailpointHitError,
    SupersededError,
    FencedOutError,
    LockLostError,
    TimelineConflictError,
    KafkaError,
    DeadlineExceededError,
)


class Input:
    """Events of a few keys; tagged by replaying those before, as an assigner knows them."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._events: list[tuple[Row, bool]] = []

    def extend(self, count: int) -> None:
        """More events: upserts that may move a key to another day, and deletes."""
        for _ in range(count):
            number = len(self._events)
            row = {
                "id": f"k{self._random.randrange(12)}",
                "day": f"d{self._random.randrange(3)}",
                "ts": number,
                "v": self._random.randrange(1000),
            }
            self._events.append((row, self._random.random() < 0.25))

    def __len__(self) -> int:
        return len(self._events)

    def replay(self, end: int) -> dict[str, tuple[Row, str]]:
        """Row and file group per live key after the first ``end`` events."""
        live: dict[str, tuple[Row, str]] = {}
        for row, is_delete in self._events[:end]:
            if is_delete:
                live.pop(row["id"], None)
            else:
                live[row["id"]] = (row, _group(row, live.get(row["id"])))
        return live

    def tag(self, start: int, end: int) -> list[Tagged]:
        """The tagged rows of the events start..end."""
        tagged: list[Tagged] = []
        for position in range(start, end):
            row, is_delete = self._events[position]
            known = self.replay(position).get(row["id"])
            if known is None:
                if not is_delete:
                    tagged.append((row, DataOp.INSERT, _group(row, None)))
                continue
            before, group = known
            at_old_place = {**row, "day": before["day"]}
            if is_delete:
                tagged.append((at_old_place, DataOp.DELETE, group))
            elif before["day"] == row["day"]:
                tagged.append((row, DataOp.UPDATE, group))
            else:
                tagged.append((at_old_place, DataOp.DELETE, group))
                tagged.append((row, DataOp.INSERT, _group(row, None)))
        return tagged


def _group(row: Row, known: tuple[Row, str] | None) -> str:
    """A key's file group: it stays while the key stays in its partition."""
    if known is not None and known[0]["day"] == row["day"]:
        return known[1]
    return f"00000000-0000-4000-8000-0000000000{row['day'][1:]}{int(row['id'][1:]) % 2}-0"


class Run:
    """One table, its input, and the dice."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = Random(seed)
        table_type = self.random.choice(list(TableType))
        self.path = CommitPath(folder, table_type, ordered=self.random.random() < 0.5, seed=seed)
        self.other = OtherEngine(self.path.storage, self.path.clock, self.path.action)
        self.input = Input(self.random)
        self.said: list[str] = []

    def tag_some(self) -> None:
        """The next events in one transaction; after a rewind from the last committed epoch on."""
        state = self.path.state()
        tagger = self.path.tagger
        if state.generation != tagger.generation:
            tagger.claim_anew(state)
        end = min(tagger.consumed + self.random.randint(1, 5), len(self.input))
        if end > tagger.consumed:
            tagger.tag(self.input.tag(tagger.consumed, end), consumed=end - tagger.consumed)

    def is_done(self) -> bool:
        state = self.path.state()
        return state.planned is None and state.committed.keyed_next.get("0", 0) == len(self.input)

    def spread_faults(self) -> None:
        """Arms what may happen during the next steps."""
        faults: list[Callable[[], None]] = [
            self._crash_later,
            self._freeze_later,
            self._fault_of_an_end,
            self._lose_something,
            self._other_engine_later,
            self._writer_fails,
            lambda: None,
            lambda: None,
        ]
        fault = self.random.choice(faults)
        self.said.append(fault.__name__)
        fault()

    def step(self) -> None:
        """One step; whatever dies of it is replaced."""
        try:
            self.path.step()
        except DIED as error:
            self.said.append(repr(error)[:100])
            self.path.crash()
        if self.random.random() < 0.2:
            self.path.broker.deliver_late_ends()

    def _crash_later(self) -> None:
        def die() -> None:
            raise FailpointHitError("dice")

        self.path.points.arm(self.random.randint(1, 40), die)

    def _freeze_later(self) -> None:
        def successor_works() -> None:
            self.path.crash()
            for _ in range(self.random.randint(1, 6)):
                self.path.step()

        self.path.points.arm(self.random.randint(1, 40), successor_works)

    def _fault_of_an_end(self) -> None:
        self.path.broker.faults.on_next_end(f"{TABLE}-coordinator", self.random.choice(list(EndFault)))

    def _lose_something(self) -> None:
        faults = self.path.broker.faults
        lose = self.random.choice([faults.lose_messages, faults.lose_acknowledgements])
        lose(self.path.topics.epochs)

    def _other_engine_later(self) -> None:
        def acts() -> None:
            # It keeps to the lock, as our coordinator does.
            if read_lock(self.path.storage) is None:
                pending = [each for each in self.other.pending() if each.action is self.path.action]
                if pending and self.random.random() < 0.5:
                    self.other.roll_back(pending[0].requested)
                else:
                    self.other.commit()

        self.path.points.arm(self.random.randint(1, 40), acts)

    def _writer_fails(self) -> None:
        if self.path.attempts.wait_for_unreported(0.0) is not None:
            self.path.fail_open_attempt(rewind=self.random.random() < 0.5)


@pytest.mark.parametrize("seed", SEEDS)
def test_ten_epochs_of_random_faults_equal_the_model(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed)
    for epoch in range(EPOCHS):
        run.input.extend(run.random.randint(1, 12))
        for number in range(STEPS_MAX):
            if run.is_done():
                break
            # The last steps are without new faults: what is there must come to an end.
            if number < 25 and run.random.random() < 0.3:
                run.spread_faults()
            run.tag_some()
            run.step()
        else:
            raise AssertionError(f"seed {seed}: epoch {epoch} does not end: {run.said[-20:]}")
        expected = run.input.replay(len(run.input))
        assert run.path.rows() == {key: row for key, (row, _) in expected.items()}, (seed, run.said)
        index = {key: (row["day"], group) for key, (row, group) in expected.items()}
        assert run.path.record_index() == index, (seed, run.said)
    run.path.crash()
    run.path.run_until_idle()
    check_traces(run.path)
