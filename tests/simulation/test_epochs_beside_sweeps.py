"""A clean that deletes many files from a slow disk leaves epochs and other writers their turns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.lived_table import LivedTable
from tests.simulation.test_life_with_services import RETAIN_S, config
from tidemark.config.table_services_model import CleanConfig
from tidemark.hudi_format.storage.local import LocalStorage

DELETE_S = 0.02
"""What the disk needs to delete one file, in seconds."""
CLEAN_EVERY_S, SECONDS = 20, 72
"""A clean deletes the log files of 20 epochs in 4 groups: 80 files, and 1.6 seconds of the disk's time."""


def test_epochs_are_committed_while_a_clean_deletes_for_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = CleanConfig(retain_ms=RETAIN_S * 1_000, interval_ms=CLEAN_EVERY_S * 1_000)
    life = LivedTable(tmp_path, replace(config(), clean=clean), groups=4, keys=40, seed=3)
    delete, deleted = LocalStorage.delete, Counter[int]()

    def slow(self: LocalStorage, path: str) -> bool:
        if not path.startswith(".hoodie/"):
            life.clock.advance(DELETE_S)
            deleted[life.epochs] += 1
        return delete(self, path)

    monkeypatch.setattr(LocalStorage, "delete", slow)
    for _ in range(SECONDS):
        life.second()
    assert sum(deleted.values()) > 80
    # A clean that went through held up the epoch that was due until its last file was deleted: all of 90 in
    # one epoch. Now an epoch waits for few slices, and only while nothing is tagged they follow each other.
    assert max(deleted.values()) <= 45
    assert life.epochs > SECONDS * 3 // 4
