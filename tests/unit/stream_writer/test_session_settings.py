"""What the session is started with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.stream_writer.errors import EngineSettingError
from tidemark.stream_writer.job import refused_setting, session_settings

SCRATCH = Path("/scratch")


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,7]", "local[2,7]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_master_gets_task_retries(master: str, expected: str) -> None:
    assert session_settings({"spark.master": master}, (), SCRATCH)["spark.master"] == expected


@pytest.mark.parametrize(
    ("master", "share", "expected"),
    [
        ("local[2]", 0.25, "local[4,4]"),
        ("local[8]", 0.25, "local[12,4]"),
        ("local[8]", 0.75, "local[14,4]"),
        ("local", 0.25, "local[2,4]"),
        ("local[2,7]", 0.25, "local[4,7]"),
        ("spark://host:7077", 0.25, "spark://host:7077"),
    ],
)
def test_a_local_session_has_slots_for_table_services_beside_those_of_epochs(
    master: str, share: float, expected: str
) -> None:
    settings = session_settings({"spark.master": master}, (), SCRATCH, share)
    assert settings["spark.master"] == expected
    assert settings["spark.scheduler.mode"] == "FAIR"
    assert "spark.scheduler.mode" not in session_settings({"spark.master": master}, (), SCRATCH)


def test_table_section_wins_over_our_defaults() -> None:
    settings = session_settings({"spark.driver.memory": "2g", "spark.locality.wait": "1s"}, (), SCRATCH)
    assert (settings["spark.driver.memory"], settings["spark.locality.wait"]) == ("2g", "1s")
    assert settings["spark.python.daemon.module"] == "tidemark.stream_writer.spark_daemon"


@pytest.mark.parametrize("key", ["spark.python.worker.reuse", "spark.task.maxFailures"])
def test_key_that_the_writer_rests_on_is_refused_by_name(key: str) -> None:
    with pytest.raises(EngineSettingError, match=key):
        session_settings({key: "x"}, (), SCRATCH)


def test_jars_are_left_out_when_there_are_none() -> None:
    far = {"spark.master": "spark://host:7077"}
    assert "spark.jars" not in session_settings(far, (), SCRATCH)
    assert session_settings(far, (Path("/a.jar"), Path("/b.jar")), SCRATCH)["spark.jars"] == "/a.jar,/b.jar"


def test_a_local_driver_has_the_jars_behind_sparks_own_and_copies_none() -> None:
    settings = session_settings({}, (Path("/a.jar"), Path("/b.jar")), SCRATCH)
    assert settings["spark.driver.extraClassPath"].endswith("/jars/*:/a.jar:/b.jar")
    assert "spark.jars" not in settings
    assert session_settings({}, (), SCRATCH)["spark.driver.extraClassPath"].endswith("/jars/*")


def test_jars_and_class_path_of_the_users_own_are_taken() -> None:
    settings = session_settings({"spark.jars": "/c.jar"}, (Path("/a.jar"),), SCRATCH)
    assert settings["spark.jars"] == "/c.jar"
    assert settings["spark.driver.extraClassPath"].endswith("/jars/*:/a.jar")
    first = {"spark.driver.extraClassPath": "/mine.jar"}
    assert (
        session_settings(first, (Path("/a.jar"),), SCRATCH)["spark.driver.extraClassPath"]
        == "/mine.jar:/a.jar"
    )


@pytest.mark.parametrize("memory", ["256m", "449M", "512", "512mb", "a lot", "-1g", ""])
def test_heap_that_spark_cannot_start_with_is_refused_by_name(memory: str) -> None:
    with pytest.raises(EngineSettingError, match=r"spark\.driver\.memory.*512m or more"):
        session_settings({"spark.driver.memory": memory}, (), SCRATCH)


@pytest.mark.parametrize("memory", ["450m", "512M", "1g", "524288k", "536870912"])
def test_heap_in_any_of_javas_units_is_taken(memory: str) -> None:
    assert session_settings({"spark.driver.memory": memory}, (), SCRATCH)["spark.driver.memory"] == memory


def test_sparks_own_refusal_of_memory_is_told_from_other_failures() -> None:
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.lang.IllegalArgumentException: System memory 466092032 must be at least 471859200. Please "
        'increase heap size using the --driver-memory option or "spark.driver.memory" in Spark configuration.'
    )
    refused = refused_setting(text)
    assert isinstance(refused, EngineSettingError)
    assert str(refused).startswith("spark.driver.memory is too small, Spark needs 450 MiB")
    assert refused_setting("java.net.BindException: Address already in use: spark.driver.memory 5") is None


def test_options_of_the_users_own_stand_behind_ours() -> None:
    options = session_settings({"spark.driver.extraJavaOptions": "-Dx=1"}, (), SCRATCH)[
        "spark.driver.extraJavaOptions"
    ]
    assert f"-Djava.io.tmpdir={SCRATCH}" in options
    assert options.endswith(" -Dx=1")
