"""What a session with executors elsewhere is started with, and what travels to them."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testing.clock import ManualClock
from tidemark.config.spark_master import parse_master
from tidemark.hudi_format.file_group.kept_tables import KeptTables, NothingKept
from tidemark.hudi_format.table_config import MergeMode
from tidemark.stream_runtime.platform.spark_env import hide_secrets
from tidemark.stream_writer import cluster
from tidemark.stream_writer.epoch_tasks import EpochTask, TableFacts
from tidemark.stream_writer.errors import EngineSettingError, TableNotSeenError
from tidemark.stream_writer.executor_archive import CODE, write_archive
from tidemark.stream_writer.job import session_settings
from tidemark.stream_writer.tasks import run_task

SCRATCH = Path("/scratch")
FAR = {"spark.master": "spark://far:7077"}
NEAR = {"spark.master": "spark://localhost:7077"}


def test_code_is_unpacked_beside_what_the_section_ships() -> None:
    settings = session_settings({**FAR, "spark.archives": "/x/env.zip#env"}, (), SCRATCH)
    assert settings["spark.archives"] == "/scratch/tidemark-executor.zip#tidemark-executor,/x/env.zip#env"


def test_local_session_ships_nothing() -> None:
    settings = session_settings({"spark.master": "local[2]"}, (), SCRATCH)
    assert not {key for key in settings if key.startswith(("spark.archives", "spark.executor"))}


def test_driver_is_reachable_only_as_far_as_its_master_is() -> None:
    assert "spark.driver.host" not in session_settings(FAR, (), SCRATCH)
    assert session_settings(NEAR, (), SCRATCH)["spark.driver.host"] == "127.0.0.1"
    named = session_settings({**FAR, "spark.driver.host": "driver"}, (), SCRATCH)
    assert named["spark.driver.host"] == "driver"
    assert "spark.driver.bindAddress" not in named


def test_table_section_wins_over_the_executors_defaults() -> None:
    assert session_settings(FAR, (), SCRATCH)["spark.executor.memory"] == "512m"
    larger = session_settings({**FAR, "spark.executor.memory": "4g"}, (), SCRATCH)
    assert larger["spark.executor.memory"] == "4g"


def test_master_that_is_not_served_is_refused() -> None:
    with pytest.raises(EngineSettingError, match=r"spark\.master.*mesos"):
        session_settings({"spark.master": "mesos://a:1"}, (), SCRATCH)


@pytest.mark.parametrize(
    ("section", "env", "expected"),
    [
        ({"spark.pyspark.python": "/a/python"}, {"PYSPARK_PYTHON": "/b/python"}, "/a/python"),
        ({}, {"PYSPARK_PYTHON": "/b/python"}, "/b/python"),
        ({}, {}, sys.executable),
    ],
)
def test_executors_python_is_the_setting_then_the_environment_then_ours(
    section: dict[str, str], env: dict[str, str], expected: str
) -> None:
    assert cluster.executor_python(section, env) == expected


def test_yarn_without_its_configuration_is_refused() -> None:
    yarn = parse_master("yarn")
    with pytest.raises(EngineSettingError, match="HADOOP_CONF_DIR"):
        cluster.check_surroundings(yarn, {"spark.authenticate": "true"}, {})
    cluster.check_surroundings(yarn, {"spark.authenticate": "true"}, {"YARN_CONF_DIR": "/etc/hadoop"})


@pytest.mark.parametrize(
    ("section", "warned"), [(FAR, True), (NEAR, False), ({**FAR, "spark.authenticate": "true"}, False)]
)
def test_driver_that_is_open_to_all_is_warned_of(
    section: dict[str, str], warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("tidemark"), "propagate", True)
    cluster.check_surroundings(parse_master(section["spark.master"]), section, {})
    assert ("spark.authenticate" in caplog.text) is warned


def test_certificates_travel_as_text(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    sent = cluster.with_certificates(
        {"bootstrap.servers": "a:1", "ssl.ca.location": str(tmp_path / "ca.pem"), "ssl.key.password": "p"}
    )
    assert sent == {
        "bootstrap.servers": "a:1",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
        "ssl.key.password": "p",
    }
    for kept in (str(tmp_path), "probe"):
        assert cluster.with_certificates({"ssl.ca.location": kept}) == {"ssl.ca.location": kept}
    with pytest.raises(EngineSettingError, match=r"kafka\.ssl\.key\.location"):
        cluster.with_certificates({"ssl.key.location": str(tmp_path / "none")})


def test_secrets_of_the_section_are_no_arguments_of_the_jvm(tmp_path: Path) -> None:
    section = {
        "spark.master": "yarn",
        "spark.authenticate.secret": "a b=ü\\",
        "spark.ssl.keyPassword": "k",
        "spark.hadoop.fs.s3a.access.key": "id",
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "key of the lake",
        "spark.hadoop.fs.gs.auth.service.account.private.key": "key of the bucket",
    }
    assert hide_secrets(section, tmp_path) == {"spark.master": "yarn"}
    [file] = (tmp_path / "spark-conf").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "spark.authenticate.secret=a\\u0020b\\u003d\\u00fc\\u005c\n" in file.read_text()
    hide_secrets({"spark.master": "yarn"}, tmp_path)
    assert not file.exists()


@pytest.mark.parametrize("theirs", [None, "salary|(?i:iban)"])
def test_spark_shows_no_value_that_we_would_not(theirs: str | None) -> None:
    section = {"spark.master": "local[2]"} | ({} if theirs is None else {"spark.redaction.regex": theirs})
    redacted = re.compile(session_settings(section, (), SCRATCH)["spark.redaction.regex"])
    for name in ("spark.ssl.keyPassword", "fs.azure.account.key.lake", "google.private.key", "my.ACCESS_KEY"):
        assert redacted.search(name)
    assert bool(redacted.search("column.IBAN")) is (theirs is not None)
    assert not redacted.search("spark.driver.memory")


def test_archive_holds_all_that_the_workers_import_of_ours(tmp_path: Path) -> None:
    target = tmp_path / "code.zip"
    assert write_archive(target) == target.stat().st_size
    with zipfile.ZipFile(target) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "code")
    assert {".".join(name.split("/")[:2]) for name in names} == set(CODE)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    # -P and another folder: nothing but the archive and the installed packages; ours come from the archive.
    script = (
        "import sys;"
        "sys.path[:] = [p for p in sys.path if not p.rstrip('/').endswith(('/libs', '/services', '/stubs'))];"
        "from tidemark.stream_writer import spark_daemon; spark_daemon.preload();"
        "import tidemark.hudi_format; print(tidemark.hudi_format.__file__)"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "code")}
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path / "code"))


def test_equal_code_gives_equal_bytes(tmp_path: Path) -> None:
    write_archive(tmp_path / "one")
    write_archive(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["one", "two"]


class Idle:
    """A worker whose task has nothing to read."""

    clock = ManualClock()

    def range_reader(self, kafka: Mapping[str, str]) -> Any:
        return self

    def kept_tables(self, epoch: int, bytes_max: int) -> KeptTables:
        return NothingKept()

    def read_many(self, wanted: Sequence[object]) -> list[list[object]]:
        return [[] for _ in wanted]


def test_machine_that_does_not_see_the_table_says_so_and_not_that_the_attempt_is_void(tmp_path: Path) -> None:
    path = str(tmp_path / "elsewhere")
    table = TableFacts(path, "t", True, MergeMode.COMMIT_TIME_ORDERING, None, {}, "t.data", "t.index", "UTC")
    task = EpochTask(table, 1, 1, "20260101000000000", "20260101000000000", "{}", "staging", 4, [])
    with pytest.raises(TableNotSeenError, match=f"does not see the table's folder {path}"):
        run_task(msgspec.msgpack.encode(task), Idle())
