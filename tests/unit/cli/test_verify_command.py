"""`tidemark verify` as a command: what it prints, its exit code, and what it remembers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.table_files import new_table, orders, write_config
from tests.unit.table_verification.damage import DAYS, Damage
from tidemark.cli.main import main
from tidemark.table_verification.verified_state import STATE_PATH


def test_command_prints_json_and_exits_by_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = write_config(tmp_path)
    new_table(tmp_path / "table").commit(orders(("k1", DAYS[0], 10)))
    assert main(["verify", "-c", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["agrees"], document["rows"], document["differences"]) == (True, 1, {})
    Damage(tmp_path / "table").index("k1", None)
    assert main(["verify", "-c", str(file), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["differences"]["row-without-entry"]["count"] == 1
    assert main(["verify", "-c", str(file)]) == 1
    assert "DOES NOT AGREE: 1 differences" in capsys.readouterr().out


def test_second_run_reads_what_changed_and_full_reads_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = write_config(tmp_path)
    new_table(tmp_path / "table").commit(orders(("k1", DAYS[0], 10)))
    assert main(["verify", "-c", str(file)]) == 0
    assert "only what changed" not in capsys.readouterr().out
    assert (tmp_path / "table" / STATE_PATH).exists()
    assert main(["verify", "-c", str(file)]) == 0
    page = capsys.readouterr()
    assert "only what changed since 2" in page.out
    assert "0 file groups" in page.out
    assert "file groups, 2 shards" in page.err
    assert main(["verify", "-c", str(file), "--full", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["since"], document["read"]) == (None, {"file_groups": 1, "shards": 2})


def test_no_table_says_where_it_looked(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["verify", "-c", str(write_config(tmp_path))]) == 1
    assert f"{tmp_path / 'table'} is no Hudi table" in capsys.readouterr().err
