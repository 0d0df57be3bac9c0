"""run.json: written whole, read only while its `run` lives, and what it resolves in a configuration."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.table_files import write_config
from tidemark.config import Address, ConfigError, load_config
from tidemark.config.run_file import (
    RunFile,
    read_run_file,
    resolve_addresses,
    run_file_path,
    why_silent,
    write_last_stop,
    write_run_file,
)

KAFKA = "127.0.0.1:19092"
COORDINATOR = Address("127.0.0.1", 17411)
HTTP = {"writer": "127.0.0.1:17413"}


def running(run: int) -> RunFile:
    pids = {"kafka": [1, 2], "writer": []}
    metrics, page = Address("127.0.0.1", 17412), "127.0.0.1:17414"
    return RunFile(KAFKA, COORDINATOR, metrics, run, pids, http=HTTP, web=page)


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_written_file_has_the_documented_keys_and_reads_back(tmp_path: Path):
    write_run_file(tmp_path, running(os.getpid()))
    document = json.loads(run_file_path(tmp_path).read_text())
    assert document["kafka"] == KAFKA
    assert document["coordinator"] == "127.0.0.1:17411"
    assert document["metrics"] == "127.0.0.1:17412"
    assert document["http"] == HTTP
    assert document["web"] == "127.0.0.1:17414"
    assert document["pids"] == {"kafka": [1, 2], "writer": []}
    assert read_run_file(tmp_path) == running(os.getpid())
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]


def test_file_of_a_run_that_has_died_is_no_answer(tmp_path: Path):
    assert read_run_file(tmp_path) is None
    write_run_file(tmp_path, running(ended_pid()))
    assert read_run_file(tmp_path) is None


@pytest.mark.parametrize("content", ["", "[]", '{"kafka": "x"}', '{"run": "me"}'])
def test_other_content_names_the_file(tmp_path: Path, content: str):
    run_file_path(tmp_path).write_text(content)
    with pytest.raises(ConfigError, match=r"run\.json.*delete it"):
        read_run_file(tmp_path)


def test_embedded_kafka_and_port_0_come_from_the_run(tmp_path: Path):
    config = load_config(write_config(tmp_path, "embedded", "127.0.0.1:0"))
    config.state.path.mkdir()
    write_run_file(config.state.path, running(os.getpid()))
    resolved = resolve_addresses(config)
    assert resolved.kafka.bootstrap_servers == KAFKA
    assert resolved.services.coordinator == COORDINATOR


def test_configured_addresses_stay(tmp_path: Path):
    config = load_config(write_config(tmp_path, "broker:9092", "127.0.0.1:7411"))
    assert resolve_addresses(config) is config
    config = load_config(write_config(tmp_path, "embedded", "127.0.0.1:7411"))
    config.state.path.mkdir()
    write_run_file(config.state.path, running(os.getpid()))
    assert resolve_addresses(config).services.coordinator == Address("127.0.0.1", 7411)


@pytest.mark.parametrize(
    ("kafka", "coordinator", "key"),
    [
        ("embedded", "127.0.0.1:7411", "kafka.bootstrap.servers: is embedded"),
        ("broker:9092", "127.0.0.1:0", "services.coordinator: is 127.0.0.1:0"),
    ],
)
def test_without_a_run_the_error_names_key_and_command(tmp_path: Path, kafka, coordinator, key):
    config = load_config(write_config(tmp_path, kafka, coordinator))
    with pytest.raises(ConfigError) as raised:
        resolve_addresses(config)
    assert key in str(raised.value)
    assert f"tidemark run -c {config.file}" in str(raised.value)


def test_services_that_stopped_or_keep_failing_are_read_back(tmp_path: Path):
    content = dataclasses.replace(
        running(os.getpid()), stopped={"assigner": "has stopped: input lost"}, failing={"writer": "no Java"}
    )
    write_run_file(tmp_path, content)
    assert read_run_file(tmp_path) == content


def test_a_file_of_before_those_keys_is_read(tmp_path: Path):
    write_run_file(tmp_path, running(os.getpid()))
    document = json.loads(run_file_path(tmp_path).read_text())
    del document["stopped"], document["failing"]
    run_file_path(tmp_path).write_text(json.dumps(document))
    assert read_run_file(tmp_path) == running(os.getpid())


def test_who_asks_in_vain_learns_why_nobody_answers(tmp_path: Path):
    assert why_silent(tmp_path) == ""
    write_last_stop(tmp_path, "coordinator: the topics were lost")
    assert why_silent(tmp_path) == "; the last one stopped: coordinator: the topics were lost"
    failing = dataclasses.replace(running(os.getpid()), failing={"coordinator": "ended with code 1"})
    write_run_file(tmp_path, failing)
    assert why_silent(tmp_path) == "; its coordinator ended with code 1"
    config = load_config(write_config(tmp_path, kafka="embedded"))
    config.state.path.mkdir()
    write_last_stop(config.state.path, "coordinator: diverged")
    with pytest.raises(ConfigError, match="the last one stopped: coordinator: diverged"):
        resolve_addresses(config)
    write_last_stop(config.state.path, None)
    assert why_silent(config.state.path) == ""
