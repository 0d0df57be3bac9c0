"""What `tidemark doctor` tries out in the folders of a configuration: links, renames, clocks, mounts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from tests.unit.table_files import write_config
from tidemark.config import load_config
from tidemark.doctor import files, places
from tidemark.doctor.checks import CheckStatus
from tidemark.stream_runtime.clock import SystemClock


def test_this_machines_file_system_does_what_publishing_needs(tmp_path: Path):
    found = files.try_out(tmp_path, SystemClock())
    assert found.lacks == ()
    assert abs(found.skew_ms) < 60_000


def test_a_clock_that_is_off_is_noticed(tmp_path: Path):
    found = files.try_out(tmp_path, ManualClock(start_ms=SystemClock().now_ms() - 3_600_000))
    assert found.skew_ms == pytest.approx(3_600_000, abs=600_000)
    findings = list(places._behaviour(found, tmp_path, "table.path"))
    assert [each.status for each in findings if "off this machine's clock" in each.text] == [
        CheckStatus.WARNING
    ]


def test_a_file_system_that_copies_instead_of_linking_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(os, "link", lambda source, target: Path(target).write_bytes(source.read_bytes()))
    assert files.try_out(tmp_path, SystemClock()).lacks == ("a link takes the place of a file that is there",)


def test_a_file_system_that_renames_over_folders_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.rename

    def rename(source: Path, target: Path) -> None:
        if target.is_dir():
            shutil.rmtree(target)
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    assert files.try_out(tmp_path, SystemClock()).lacks == ("a rename replaces a folder that is not empty",)


def test_a_file_system_without_links_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def link(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    assert "no hard links" in files.try_out(tmp_path, SystemClock()).lacks[0]


def test_file_system_type_is_that_of_the_innermost_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw - ext4 /dev/a rw\n"
        f"23 22 0:5 / {tmp_path} rw shared:1 - nfs4 server:/x rw\n"
        f"24 22 0:6 / {tmp_path}-other rw - tmpfs t rw\n"
    )
    monkeypatch.setattr(files, "_MOUNTS", mounts)
    assert files.file_system(tmp_path) == "nfs4"
    assert files.file_system(Path("/")) == "ext4"


def test_folder_on_nfs_is_named_with_how_to_mount_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = load_config(write_config(tmp_path))
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"23 22 0:5 / {tmp_path} rw shared:1 - nfs4 server:/x rw\n")
    monkeypatch.setattr(files, "_MOUNTS", mounts)
    (table,) = [each for each in places.table_folder(config, SystemClock(), SeededIds(1)) if each.remedy]
    assert (table.status, "nfs4" in table.text) == (CheckStatus.WARNING, True)
    assert "noac or actimeo=0" in table.remedy
    state = [each for each in places.state_folder(config, SystemClock(), SeededIds(1)) if "nfs4" in each.text]
    assert ["local disk" in each.remedy for each in state] == [True]


def test_folder_that_this_user_may_not_write_to_fails_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    config = load_config(write_config(tmp_path))
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = list(places.table_folder(config, SystemClock(), SeededIds(1)))
    (failing,) = [each for each in found if each.status is CheckStatus.FAILS]
    assert "(table.path) cannot be written to by user" in failing.text
    assert "chown or chmod it" in failing.remedy
