"""The bench of the index's memory fails where the memory is more than the configuration says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bench import index_memory
from bench.index_memory import check_bound, main

MIB = 1 << 20


def test_memory_above_state_memory_and_what_a_process_takes_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check_bound(662 * MIB, 512 * MIB)
    with pytest.raises(SystemExit) as ended:
        check_bound(662 * MIB + 1, 512 * MIB)
    assert ended.value.code == 1
    within, above = capsys.readouterr().out.splitlines()
    assert "within state.memory + 150 MiB = 662 MiB" in within
    assert "ABOVE" in above


@pytest.mark.parametrize(("alone", "in_group"), [(1, 0), (0, 1), (0, 0)])
def test_the_command_fails_when_a_measurement_does(
    monkeypatch: pytest.MonkeyPatch, alone: int, in_group: int
) -> None:
    def begin(command: list[str], *, check: bool) -> CompletedProcess[bytes]:
        assert Path(command[command.index("--folder") + 1]).is_dir()
        return CompletedProcess(command, alone)

    monkeypatch.setattr(index_memory, "make_table_apart", lambda *_: None)
    monkeypatch.setattr(subprocess, "run", begin)
    monkeypatch.setattr(index_memory, "_in_group", lambda *_: in_group)
    monkeypatch.setattr(sys, "argv", ["index_memory"])
    if not alone and not in_group:
        main()
        return
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
