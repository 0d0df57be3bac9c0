"""`tidemark archive`: the file it writes, and what it says of it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tidemark.cli.main import main


def test_archive_is_written_and_its_size_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "new folder" / "code.zip"
    assert main(["archive", "-o", str(target), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(target), "bytes": target.stat().st_size}
    with zipfile.ZipFile(target) as archive:
        assert "tidemark/stream_writer/spark_daemon.py" in archive.namelist()


def test_target_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["archive", "-o", str(tmp_path / "file" / "code.zip")]) == 1
    assert "tidemark archive: " in capsys.readouterr().err
