"""Where merges run: `tidemark run` starts a process for them only where the configuration says so, and that
process refuses a configuration that does not.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.cli.run.supervisor import MERGES, SERVICES, roles, service_command
from tidemark.config import load_config
from tidemark.stream_writer.services_worker import share_in_writer


def with_services(folder: Path, text: str) -> Path:
    file = write_config(folder)
    file.write_text(f"{file.read_text()}table_services: {text}\n")
    return file


@pytest.mark.parametrize(
    ("text", "starts_a_process", "share"),
    [
        ("{enabled: false}", False, 0.0),
        ("{enabled: true}", False, 0.25),
        ("{enabled: true, share: 0.5}", False, 0.5),
        ("{enabled: true, run: separate}", True, 0.0),
        ("{enabled: false, run: separate}", False, 0.0),
    ],
)
def test_merges_run_in_the_writer_or_in_a_process_of_their_own(
    text: str, starts_a_process: bool, share: float, tmp_path: Path
) -> None:
    config = load_config(with_services(tmp_path, text), {})
    assert roles(config) == ((*SERVICES, MERGES) if starts_a_process else SERVICES)
    assert share_in_writer(config) == share


def test_the_process_of_merges_is_a_command_of_its_own() -> None:
    assert service_command(MERGES, Path("t.yaml"))[3:] == ["services", "serve", "-c", "t.yaml"]
    assert service_command("writer", Path("t.yaml"))[3:] == ["writer", "-c", "t.yaml"]


@pytest.mark.parametrize("text", ["{enabled: true}", "{enabled: false, run: separate}"])
def test_it_refuses_a_table_whose_merges_run_elsewhere(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["services", "serve", "-c", str(with_services(tmp_path, text))]) == 2
    assert "set table_services.enabled: true and table_services.run: separate" in capsys.readouterr().err
