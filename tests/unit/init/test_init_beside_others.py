"""`tidemark init` beside other configurations, and for a table that is there already."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.init.test_init import init, order, sample_file
from tests.unit.table_files import new_table
from tidemark.cli.main import main
from tidemark.config import load_config


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_two_configurations_of_one_folder_can_be_run_beside_each_other(
    here: Path, capsys: pytest.CaptureFixture[str]
):
    (here / "notes.yaml").write_text("table: not ours\n")
    (here / "broken.yml").write_text(": : :\n- {")
    for name in ("one", "two", "three"):
        init(capsys, "--sample", str(sample_file(here, [order(n) for n in range(20)], f"{name}.jsonl")))
    found = [load_config(here / f"{name}.yaml", {}) for name in ("one", "two", "three")]
    assert len({config.state.path for config in found}) == 3
    addresses = [
        each
        for config in found
        for each in (config.services.coordinator, config.services.metrics, config.services.web)
    ]
    assert len(set(addresses)) == len(addresses)
    lines = (here / "one.yaml").read_text().splitlines()
    assert [line for line in lines if line.startswith("services:")] == []


def test_next_step_for_a_table_that_is_there_is_to_adopt_it(here: Path, capsys: pytest.CaptureFixture[str]):
    new_table(here / "t")
    assert main(["init", "--table", str(here / "t"), "--topic", "orders"]) == 0
    lines = capsys.readouterr().out.splitlines()
    adopt = next(at for at, line in enumerate(lines) if "tidemark table adopt -c" in line)
    run = next(at for at, line in enumerate(lines) if "tidemark run -c" in line)
    assert adopt < run
