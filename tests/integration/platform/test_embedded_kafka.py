"""The embedded Kafka: transactions, kill -9, restarts on the same address, nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform.broker_format import NAMES, SNAPSHOT
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.errors import BrokerFailedError
from tidemark.stream_runtime.platform.jars import ensure_jars

pytestmark = pytest.mark.kafka
WAIT_S = 120


@pytest.fixture
def make_kafka(java, tmp_path):
    clusters = []

    def make(name="kafka", **options):
        cluster = EmbeddedKafka(tmp_path / name, ensure_jars("kafka", java), java.home, **options)
        clusters.append(cluster)
        return cluster

    yield make
    for cluster in clusters:
        cluster.stop()


def create_topic(servers, topic, replicas=1):
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(WAIT_S)


def commit_values(servers, topic, values, transactional_id="writer"):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(WAIT_S)


def read_values(servers, topic, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(count, timeout=WAIT_S)]
    consumer.close()
    return found


def test_killed_and_frozen_broker_keeps_records_and_address_and_leaves_nothing(make_kafka, tmp_path):
    kafka = make_kafka()
    kafka.start()
    address = kafka.bootstrap_servers
    create_topic(address, "t")
    commit_values(address, "t", [b"1", b"2"])
    first_pid = kafka.pids[1]
    kafka.kill()
    assert kafka.pids == {}
    assert not psutil.pid_exists(first_pid)
    (temporary,) = tmp_path.rglob("node-1/tmp")
    left = temporary / "left-by-a-killed-jvm"
    left.touch()

    kafka.start_node(1)
    assert not left.exists()
    assert kafka.bootstrap_servers == address
    pid = kafka.pids[1]
    assert pid != first_pid
    assert f"-Djava.io.tmpdir={temporary}" in psutil.Process(pid).cmdline()
    commit_values(address, "t", [b"3"])
    assert read_values(address, "t", 3) == [b"1", b"2", b"3"]

    assert (tmp_path / "kafka" / "node-1" / "pid").read_text() == str(pid)
    os.kill(pid, signal.SIGSTOP)
    kafka.stop(grace_s=1)
    assert not psutil.pid_exists(pid)
    assert not (tmp_path / "kafka" / "node-1" / "pid").exists()


def test_second_owner_is_refused_while_it_runs_and_then_finds_data_and_address(make_kafka):
    with make_kafka() as kafka:
        address = kafka.bootstrap_servers
        create_topic(address, "t")
        commit_values(address, "t", [b"1"])
        with pytest.raises(BrokerFailedError, match=rf"already runs .process {kafka.pids[1]}."):
            make_kafka().start()
    with make_kafka() as successor:
        assert successor.bootstrap_servers == address
        assert read_values(address, "t", 1) == [b"1"]


def test_second_cluster_is_formatted_by_what_the_tool_wrote_for_the_first(java, tmp_path, monkeypatch):
    jars = ensure_jars("kafka", java)
    monkeypatch.setenv("TIDEMARK_CACHE_DIR", str(tmp_path / "cache"))
    first, second = (EmbeddedKafka(tmp_path / name, jars, java.home) for name in ("first", "second"))
    # It is formatted and started, and nobody waits for it.
    with pytest.raises(BrokerFailedError, match="not ready within 0 s"):
        first.start(timeout_s=0.0)
    with second:
        create_topic(second.bootstrap_servers, "t")
        commit_values(second.bootstrap_servers, "t", [b"1"])
        assert read_values(second.bootstrap_servers, "t", 1) == [b"1"]
    by_tool, by_us = (tmp_path / name / "node-1" for name in ("first", "second"))
    said = "Formatting metadata directory"
    assert said in (by_tool / "console.log").read_text()
    assert said not in (by_us / "console.log").read_text()
    assert (by_tool / "data" / SNAPSHOT).read_bytes() == (by_us / "data" / SNAPSHOT).read_bytes()
    theirs, ours = (properties(folder / "data" / NAMES) for folder in (by_tool, by_us))
    assert theirs.keys() == ours.keys()
    assert {key for key, value in ours.items() if value == theirs[key]} == {"version", "node.id"}


def properties(file):
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return dict(line.split("=") for line in lines)


def test_settings_that_guarantees_rest_on_are_in_force(kafka):
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    settings = admin.describe_configs([resource])[resource].result(WAIT_S)
    assert settings["transaction.partition.verification.enable"].value == "true"
    assert settings["transaction.abort.timed.out.transaction.cleanup.interval.ms"].value == "1000"
    assert settings["auto.create.topics.enable"].value == "false"


def test_broker_that_cannot_start_says_why(make_kafka):
    with pytest.raises(BrokerFailedError, match=r"(?s)node 1 .*num\.io\.threads"):
        make_kafka(settings={"num.io.threads": "none"}).start()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")
def test_broker_dies_with_its_killed_owner(java, tmp_path):
    owner_code = textwrap.dedent(f"""
        import time
        from pathlib import Path
        from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
        from tidemark.stream_runtime.platform.jars import ensure_jars
        kafka = EmbeddedKafka(Path({str(tmp_path)!r}), ensure_jars("kafka"), Path({str(java.home)!r}))
        kafka.start()
        print(kafka.pids[1], flush=True)
        time.sleep(600)
    """)
    with subprocess.Popen([sys.executable, "-c", owner_code], stdout=subprocess.PIPE, text=True) as owner:
        pid = int(owner.stdout.readline())
        broker = psutil.Process(pid)
        assert "java" in broker.name()
        owner.kill()
        owner.wait()
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + WAIT_S
    while broker.is_running() and broker.status() != psutil.STATUS_ZOMBIE:
        assert clock.monotonic_s() < deadline_s, f"broker {pid} outlived its owner"
        clock.sleep(0.05)
