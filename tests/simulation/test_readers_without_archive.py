"""A reader that does not read the archive sees each row: hudi-rs, and Hudi's rules without the history.

Such a reader takes the requested time of an archived write for its completion time. So what was requested
before a compaction and completed after it is not archived before its file groups are compacted again; and a
compaction is planned between two attempts, so that there is hardly any such write.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.hudi_rules.slices import Group
from tests.hudi_rules.table import DATA, HudiTable
from tests.hudi_rules.timeline import parse_timeline
from tests.simulation.lived_table import LivedTable
from tests.simulation.test_life_with_services import config
from tidemark.commit_coordinator.domain.service_actions import ATTEMPT_MS
from tidemark.config.table_services_model import ArchiveConfig, DataCompactionConfig, IndexCompactionConfig
from tidemark.epoch_protocol.service_entries import ServiceCommitted, ServiceKind

DAYS = ("d0", "d1", "d2")
EPOCHS, ASKED_AT = 15, 4
OPEN_ROUNDS = 6
SERVICES = replace(
    config(),
    compact_data=DataCompactionConfig(log_files=2 * EPOCHS),
    compact_index=IndexCompactionConfig(log_files=8, log_ratio=100.0),
    archive=ArchiveConfig(enabled=False, min=3),
)
"""Data is compacted, and writes are archived, when that is asked for; the index is compacted in between."""


class SlowWriter(LivedTable):
    """Its writer reports some rounds after an attempt was opened. Beside one attempt, that of the instant
    `beside`, which takes `more_ms` longer, an operator asks for a compaction.
    """

    beside = ""
    more_ms = 0
    _rounds = 0

    def write_open_attempt(self) -> list[bytes]:
        opened = self.attempts.wait_for_unreported(0.0)
        self._rounds = 0 if opened is None else self._rounds + 1
        if opened is not None and self.epochs == ASKED_AT and not self.beside:
            self.beside = opened.planned.instant or ""
            self.clock.advance(self.more_ms / 1_000)
            self.ask(ServiceKind.COMPACT_DATA)
        return super().write_open_attempt() if self._rounds > OPEN_ROUNDS else []

    def ask(self, kind: ServiceKind) -> None:
        assert self.coordinator is not None
        self.coordinator.services.want(kind, lambda _number, _nothing: None)

    def live(self, epochs: int) -> None:
        """Up to so many epochs. With and without the archive a reader merges the same files all the time."""
        while self.epochs < epochs:
            self.second()
            assert self._read_slices(with_archive=False) == self._read_slices(with_archive=True)
        self.settle()
        assert self.rows() == self.model

    def _read_slices(self, *, with_archive: bool) -> dict[Group, tuple[str | None, list[str]]]:
        storage = self.storage
        table = HudiTable(storage.names, storage.read, {day: storage.names(day) for day in DAYS})
        if not with_archive:
            table.timeline = parse_timeline(storage.names(DATA))
        return table.read_slices()

    def is_archived(self, instant: str) -> bool:
        return instant not in parse_timeline(self.storage.names(DATA)).instants

    def compactions(self) -> list[str]:
        """The instants of the committed ones."""
        ended = self.ended()
        return [
            each.instant
            for each in self.planned_services().values()
            if each.kind is ServiceKind.COMPACT_DATA and isinstance(ended.get(each.service), ServiceCommitted)
        ]


def test_a_due_compaction_waits_for_the_end_of_the_attempt_whose_write_is_archived_soon(
    tmp_path: Path,
) -> None:
    life = SlowWriter(tmp_path / "t", SERVICES, groups=3, keys=30, seed=5)
    life.live(12)
    life.ask(ServiceKind.ARCHIVE)
    life.live(EPOCHS)
    [compaction] = life.compactions()
    assert life.beside < compaction
    assert life.is_archived(life.beside)


def test_a_write_that_was_open_beside_a_compaction_is_archived_after_the_next_one(tmp_path: Path) -> None:
    """The attempt took so long that the compaction was planned beside it."""
    life = SlowWriter(tmp_path / "t", SERVICES, groups=3, keys=30, seed=5)
    life.more_ms = ATTEMPT_MS
    life.live(12)
    life.ask(ServiceKind.ARCHIVE)
    life.live(EPOCHS)
    [compaction] = life.compactions()
    written = parse_timeline(life.storage.names(DATA)).instants[life.beside]
    assert life.beside < compaction < str(written.completion)
    life.ask(ServiceKind.COMPACT_DATA)
    life.live(EPOCHS + 5)
    life.ask(ServiceKind.ARCHIVE)
    life.live(EPOCHS + 9)
    assert len(life.compactions()) == 2
    assert life.is_archived(life.beside)
