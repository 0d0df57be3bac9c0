"""Class data archives: when a JVM uses one, and that it never needs one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tidemark.stream_runtime.platform import class_data
from tidemark.stream_runtime.platform.class_data import KAFKA, java_options, recording
from tidemark.stream_runtime.platform.java import find_java


class Machine:
    """A Java's folder, two jars and a cache, all below one folder."""

    def __init__(self, folder: Path) -> None:
        self.java = folder / "jvm"
        self.java.mkdir()
        (self.java / "release").write_text('JAVA_VERSION="17.0.9"\n')
        self.jars = [folder / "a.jar", folder / "b.jar"]
        for jar in self.jars:
            jar.write_bytes(b"classes")
        self.cache = folder / "cache" / "class-data"
        self.environment = {"TIDEMARK_CACHE_DIR": str(self.cache.parent)}

    def options(self, name: str = KAFKA) -> tuple[str, ...]:
        return java_options(name, self.java, self.jars, self.environment)

    def record(self, content: bytes = b"archive") -> None:
        """As a JVM does it that was told to."""
        with recording(KAFKA, self.java, self.jars, self.environment):
            Path(self.options()[0].partition("=")[2]).write_bytes(content)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_an_archive_a_jvm_gets_no_option(machine: Machine) -> None:
    assert machine.options() == ()


def test_a_recorded_archive_is_used_by_those_of_its_name_alone(machine: Machine) -> None:
    machine.record()
    [archive] = machine.cache.iterdir()
    assert machine.options()[0] == f"-XX:SharedArchiveFile={archive}"
    assert machine.options(class_data.SPARK_DRIVER) == ()
    assert class_data.RECORD_VARIABLE not in machine.environment


def test_another_java_or_other_jars_have_another_archive(machine: Machine) -> None:
    machine.record()
    os.utime(machine.jars[1], ns=(1, 1))
    assert machine.options() == ()
    machine.record()
    assert machine.options() != ()
    (machine.java / "release").write_text('JAVA_VERSION="17.0.10"\n')
    assert machine.options() == ()
    machine.record()
    machine.jars.reverse()
    assert machine.options() == ()


def test_an_archive_that_was_cut_short_is_not_used(machine: Machine) -> None:
    machine.record()
    [archive] = machine.cache.iterdir()
    archive.write_bytes(b"archiv")
    assert machine.options() == ()


def test_what_is_too_large_is_not_kept(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_data, "ARCHIVE_BYTES_MAX", 6)
    machine.record()
    assert list(machine.cache.iterdir()) == []


def test_what_a_failed_recording_left_is_removed(machine: Machine) -> None:
    def fail() -> None:
        with recording(KAFKA, machine.java, machine.jars, machine.environment):
            Path(machine.options()[0].partition("=")[2]).write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(machine.cache.iterdir()) == []
    assert machine.options() == ()


def test_older_archives_make_room(machine: Machine) -> None:
    for time_s in range(class_data.KEPT_MAX + 2):
        os.utime(machine.jars[0], (time_s, time_s))
        machine.record()
        [newest] = machine.cache.glob(Path(machine.options()[0].partition("=")[2]).name)
        os.utime(newest, (time_s, time_s))
    assert len(list(machine.cache.iterdir())) == class_data.KEPT_MAX
    assert machine.options() != ()


def test_a_jvm_goes_on_silently_without_an_archive_that_is_broken(machine: Machine) -> None:
    machine.record(b"\x00" * 4096)
    told = [str(find_java().executable), *machine.options(), "-version"]
    done = subprocess.run(told, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0
    assert done.stdout == ""
