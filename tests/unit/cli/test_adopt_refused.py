"""`tidemark table adopt --drop-stats` says all reasons to refuse before it drops anything."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli import tables
from tidemark.cli.main import main
from tidemark.console.errors import CliError

KEY = "hoodie.table.metadata.partitions="


class Refused:
    """A table in the state of one that Spark made: stats are on, the time zone is LOCAL."""

    def __init__(self, folder: Path) -> None:
        self.config = write_config(folder)
        new_table(folder / "table").commit(orders(("k1", "2026-01-01", 1)))
        self.properties = folder / "table" / ".hoodie" / "hoodie.properties"
        text = self.properties.read_text().replace("timezone=UTC", "timezone=LOCAL")
        self.set(text.replace(KEY, f"{KEY}column_stats,"))

    def set(self, text: str) -> None:
        self.text = text
        self.properties.write_text(text)

    def adopt(self, *more: str) -> int:
        code = main(["table", "adopt", "-c", str(self.config), "--drop-stats", "--yes", *more])
        assert self.properties.read_text() == self.text, "nothing was changed"
        return code


@pytest.fixture
def refused(tmp_path: Path) -> Refused:
    return Refused(tmp_path)


def test_for_another_index(refused: Refused, capsys: pytest.CaptureFixture[str]):
    refused.set(refused.text.replace(KEY, f"{KEY}bloom_filters,"))
    assert refused.adopt() == 2
    said = capsys.readouterr().err
    assert "bloom_filters" in said
    # What adopting cures is no reason.
    assert "column_stats" not in said
    assert "LOCAL" not in said


def test_for_a_configuration_that_contradicts_the_table(refused: Refused, capsys: pytest.CaptureFixture[str]):
    file = refused.config
    file.write_text(file.read_text().replace("partition: [day]", "partition: []"))
    assert refused.adopt() == 2
    assert "table.partition: (), but the table has" in capsys.readouterr().err


def test_for_what_keeps_a_new_ledger_from_being_begun(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(*_: object) -> None:
        raise CliError("input topic misspelt does not exist")

    monkeypatch.setattr(tables, "reachable_kafka", lambda config, *_: nullcontext(config))
    monkeypatch.setattr("tidemark.cli.tables.ConfluentKafkaClient.from_config", lambda *_, **__: None)
    monkeypatch.setattr(tables, "check_new_ledger", refuse)
    monkeypatch.setattr(tables, "refuse_while_served_elsewhere", lambda *_: None)
    assert refused.adopt("--new-ledger") == 1
    assert "misspelt" in capsys.readouterr().err
