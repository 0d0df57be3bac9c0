"""Jar sets: what Ivy is asked, what is accepted, what a failure leaves behind. Ivy itself is stood in for."""

import hashlib
from xml.etree import ElementTree

import pytest

from testing.clock import ManualClock
from tidemark.stream_runtime.platform import jars
from tidemark.stream_runtime.platform.errors import JarsUnavailableError
from tidemark.stream_runtime.platform.ivy import Exclusion, Module, module_file
from tidemark.stream_runtime.platform.java import find_java

CONTENT = {"a-1.jar": b"first", "b-2.jar": b"second"}


@pytest.fixture
def lock(monkeypatch):
    recorded = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    monkeypatch.setattr(jars, "read_lock", lambda: {"kafka": recorded})


@pytest.fixture
def ivy(monkeypatch):
    """Stands in for Ivy: fails as often as told, then delivers `content`; counts the calls."""

    class Ivy:
        def __init__(self):
            self.calls, self.failures, self.content = 0, 0, dict(CONTENT)

        def retrieve(self, java, request, folder, report):
            self.calls += 1
            (folder / "jars").mkdir(parents=True, exist_ok=True)
            if self.calls <= self.failures:
                raise JarsUnavailableError("connection reset")
            for name, content in self.content.items():
                (folder / "jars" / name).write_bytes(content)
            return folder / "jars"

    stand_in = Ivy()
    monkeypatch.setattr("tidemark.stream_runtime.platform.ivy.retrieve", stand_in.retrieve)
    return stand_in


def fetch(tmp_path):
    return jars.ensure_jars(
        "kafka", find_java(), clock=ManualClock(), cache=tmp_path, report=lambda line: None
    )


def test_fetched_set_is_complete_and_fetched_once(tmp_path, lock, ivy):
    first = fetch(tmp_path)
    assert [jar.name for jar in first] == ["a-1.jar", "b-2.jar"]
    assert {jar.name: jar.read_bytes() for jar in first} == CONTENT
    assert fetch(tmp_path) == first
    assert ivy.calls == 1


def test_network_failure_is_retried(tmp_path, lock, ivy):
    ivy.failures = 2
    assert len(fetch(tmp_path)) == 2
    assert ivy.calls == 3


def test_third_failure_ends_with_what_to_do_and_leaves_no_set(tmp_path, lock, ivy):
    ivy.failures = 3
    with pytest.raises(JarsUnavailableError, match=r"3 tries.*TIDEMARK_IVY_SETTINGS.*connection reset"):
        fetch(tmp_path)
    assert not list((tmp_path / "jars").glob("kafka-*"))


@pytest.mark.parametrize(
    ("served", "says"),
    [
        ({"a-1.jar": b"first", "b-2.jar": b"tampered"}, r"other content \['b-2.jar'\]"),
        ({"a-1.jar": b"first"}, r"missing \['b-2.jar'\]"),
        ({**CONTENT, "c-3.jar": b"third"}, r"unexpected \['c-3.jar'\]"),
    ],
)
def test_other_jars_than_recorded_are_refused(tmp_path, lock, ivy, served, says):
    ivy.content = served
    with pytest.raises(JarsUnavailableError, match=says):
        fetch(tmp_path)
    assert not list((tmp_path / "jars").glob("kafka-*"))


def test_lock_file_records_every_set_by_sha256():
    locked = jars.read_lock()
    assert locked.keys() == jars.JAR_SETS.keys()
    assert all(len(bytes.fromhex(digest)) == 32 for jar_set in locked.values() for digest in jar_set.values())
    assert {"kafka_2.13-4.4.0.jar", "log4j-slf4j-impl-2.25.3.jar"} <= locked["kafka"].keys()


def test_request_names_modules_and_exclusions():
    text = module_file([Module("o", "m", "1"), Module("o", "bundle", "2", False)], [Exclusion("x", "y")])
    root = ElementTree.fromstring(text)
    wanted = [(d.get("name"), d.get("rev"), d.get("conf")) for d in root.iter("dependency")]
    assert wanted == [("m", "1", "default->default"), ("bundle", "2", "default->master")]
    assert [(e.get("org"), e.get("module")) for e in root.iter("exclude")] == [("x", "y")]


def test_folder_with_a_colon_cannot_be_a_class_path(tmp_path):
    with pytest.raises(JarsUnavailableError, match="TIDEMARK_CACHE_DIR"):
        jars.class_path([tmp_path / "a:b" / "c.jar"])
