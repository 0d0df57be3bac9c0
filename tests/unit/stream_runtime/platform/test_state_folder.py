"""The state folder is its owner's alone, and no link; what is wrong is said before anything is opened."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from tidemark.stream_runtime.platform import state_folder
from tidemark.stream_runtime.platform.state_folder import StateFolderError, prepare_state_folder


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_new_folder_is_for_its_owner_alone(tmp_path: Path, umask: int):
    former = os.umask(umask)
    try:
        prepare_state_folder(tmp_path / "deep" / "state")
    finally:
        os.umask(former)
    assert mode_of(tmp_path / "deep" / "state") == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o770, 0o701])
def test_existing_folder_is_closed_to_others_and_keeps_what_it_holds(tmp_path: Path, mode: int):
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(mode)
    (state / "run.json").write_text("{}")
    prepare_state_folder(state)
    assert mode_of(state) == 0o700
    assert (state / "run.json").read_text() == "{}"


def test_link_is_refused_and_what_it_leads_to_untouched(tmp_path: Path):
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "state").symlink_to("elsewhere")
    with pytest.raises(StateFolderError, match=r"state is a link.*name the folder.*elsewhere"):
        prepare_state_folder(tmp_path / "state")
    assert mode_of(tmp_path / "elsewhere") == 0o755


def test_link_to_nothing_is_refused(tmp_path: Path):
    (tmp_path / "state").symlink_to("nowhere")
    with pytest.raises(StateFolderError, match="is a link"):
        prepare_state_folder(tmp_path / "state")
    assert not (tmp_path / "nowhere").exists()


def test_link_above_the_folder_is_followed(tmp_path: Path):
    """/var may be a link: who can turn it owns the machine."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "var").symlink_to("disk")
    prepare_state_folder(tmp_path / "var" / "state")
    assert mode_of(tmp_path / "disk" / "state") == 0o700


def test_file_in_the_way_is_an_error_of_the_system(tmp_path: Path):
    (tmp_path / "state").write_text("")
    with pytest.raises(NotADirectoryError):
        prepare_state_folder(tmp_path / "state")


def owned_by(monkeypatch: pytest.MonkeyPatch, owner: int, mode: int) -> None:
    monkeypatch.setattr(state_folder, "_owner_and_mode", lambda _: (owner, mode))
    monkeypatch.setattr("os.geteuid", lambda: 1000)


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "state").mkdir()
    owned_by(monkeypatch, 1001, 0o777)
    with pytest.raises(StateFolderError, match="belongs to another user .id 1001."):
        prepare_state_folder(tmp_path / "state")


@pytest.mark.parametrize(("mode", "warned"), [(0o2770, False), (0o777, True)])
def test_mounted_folder_of_root_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
):
    (tmp_path / "state").mkdir()
    owned_by(monkeypatch, 0, mode)
    with caplog.at_level(logging.WARNING, "tidemark.state"):
        prepare_state_folder(tmp_path / "state")
    assert ("open to all users" in caplog.text) is warned
