"""Which Java is chosen, and what is said when there is none."""

import pytest

from tidemark.stream_runtime.platform import java
from tidemark.stream_runtime.platform.errors import JavaNotFoundError


@pytest.fixture
def jdk(tmp_path):
    """Makes a folder that looks like a JDK of a version; `release` as real ones write it."""

    def make(name, version, release=True):
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        executable = home / "bin" / "java"
        executable.write_text(
            f'#!/bin/sh\necho \'openjdk version "{version}"\' >&2\necho "    java.home = {home}" >&2\n'
        )
        executable.chmod(0o755)
        if release:
            (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        return home

    return make


def test_java_home_wins_over_path(jdk):
    home, other = jdk("home", "17.0.9"), jdk("other", "17.0.1")
    found = java.find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.bundled) == (home, "17.0.9", False)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "21.0.1", "25"])
def test_wrong_java_home_is_passed_over(jdk, version):
    wrong, right = jdk("wrong", version), jdk("right", "17.0.1")
    found = java.find_java({"JAVA_HOME": str(wrong), "PATH": str(right / "bin")})
    assert found.home == right


def test_link_on_path_leads_to_the_home_behind_it(jdk, tmp_path):
    home = jdk("jvm", "17.0.9")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    assert java.find_java({"PATH": str(tmp_path / "links")}).home == home


def test_script_of_a_version_manager_is_asked_where_java_is(jdk, tmp_path):
    home = jdk("jvm", "17.0.9")
    shims = tmp_path / "manager" / "shims"
    shims.mkdir(parents=True)
    (shims / "java").write_text(f'#!/bin/sh\nexec {home}/bin/java "$@"\n')
    (shims / "java").chmod(0o755)
    assert java.find_java({"PATH": str(shims)}).home == home


def test_java_without_release_file_is_asked_for_its_version(jdk):
    home = jdk("bare", "17.0.9", release=False)
    assert java.find_java({"JAVA_HOME": str(home), "PATH": ""}).version == "17.0.9"


def test_bundled_java_is_the_last_resort():
    found = java.find_java({"PATH": ""})
    assert found.bundled
    assert found.major == java.REQUIRED_MAJOR
    assert found.executable.is_file()


def test_no_java_names_what_was_seen_and_what_to_do(jdk, monkeypatch):
    wrong = jdk("wrong", "11.0.2")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(JavaNotFoundError) as failed:
        java.find_java({"JAVA_HOME": str(wrong), "PATH": ""})
    assert f"JAVA_HOME: {wrong} is Java 11.0.2" in str(failed.value)
    assert "make setup" in str(failed.value)
