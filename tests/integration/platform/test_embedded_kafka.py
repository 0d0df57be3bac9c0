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

from stream_runtime.clock import SystemClock
from stream_runtime.platform.embedded_kafka import EmbeddedKafka
from stream_runtime.platform.errors import BrokerFailedError
from stream_runtime.platform.jars import ensure_jars

pytestmark = pytest.mark.kafka


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
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(15)


def commit_values(servers, topic, values, transactional_id="writer"):
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.commit_transaction(30)


def read_values(servers, topic, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = [message.value() for message in consumer.consume(count, timeout=20)]
    consumer.close()
    return found


def test_acknowledged_records_survive_kill_and_the_address_stays(make_kafka):
    kafka = make_kafka()
    kafka.start()
    address = kafka.bootstrap_servers
    create_topic(address, "t")
    commit_values(address, "t", [b"1", b"2"])
    first_pid = kafka.pids[1]
    kafka.kill()
    assert kafka.pids == {}
    assert not psutil.pid_exists(first_pid)
    kafka.start_node(1)
    assert kafka.bootstrap_servers == address
    assert kafka.pids[1] != first_pid
    commit_values(address, "t", [b"3"])
    assert read_values(address, "t", 3) == [b"1", b"2", b"3"]


def test_what_a_killed_broker_had_unpacked_goes_with_its_next_start(make_kafka, tmp_path):
    kafka = make_kafka()
    kafka.start()
    create_topic(kafka.bootstrap_servers, "t")
    commit_values(kafka.bootstrap_servers, "t", [b"1"])
    kafka.kill()
    (temporary,) = tmp_path.rglob("node-1/tmp")
    left = temporary / "left-by-a-killed-jvm"
    left.touch()
    kafka.start_node(1)
    assert not left.exists()
    assert f"-Djava.io.tmpdir={temporary}" in psutil.Process(kafka.pids[1]).cmdline()


def test_restart_by_another_owner_finds_data_and_address(make_kafka):
    with make_kafka() as kafka:
        address = kafka.bootstrap_servers
        create_topic(address, "t")
        commit_values(address, "t", [b"1"])
    with make_kafka() as successor:
        assert successor.bootstrap_servers == address
        assert read_values(address, "t", 1) == [b"1"]


def test_second_start_of_a_running_cluster_is_refused(make_kafka):
    with (
        make_kafka() as kafka,
        pytest.raises(BrokerFailedError, match=rf"already runs .process {kafka.pids[1]}."),
    ):
        make_kafka().start()


def test_stop_ends_a_frozen_broker_and_removes_its_pid_file(make_kafka, tmp_path):
    kafka = make_kafka()
    kafka.start()
    pid = kafka.pids[1]
    assert (tmp_path / "kafka" / "node-1" / "pid").read_text() == str(pid)
    os.kill(pid, signal.SIGSTOP)
    kafka.stop(grace_s=5)
    assert not psutil.pid_exists(pid)
    assert not (tmp_path / "kafka" / "node-1" / "pid").exists()


def test_settings_that_guarantees_rest_on_are_in_force(kafka):
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    settings = admin.describe_configs([resource])[resource].result(15)
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
        from stream_runtime.platform.embedded_kafka import EmbeddedKafka
        from stream_runtime.platform.jars import ensure_jars
        kafka = EmbeddedKafka(Path({str(tmp_path)!r}), ensure_jars("kafka"), Path({str(java.home)!r}))
        kafka.start()
        print(kafka.pids[1], flush=True)
        time.sleep(60)
    """)
    with subprocess.Popen([sys.executable, "-c", owner_code], stdout=subprocess.PIPE, text=True) as owner:
        pid = int(owner.stdout.readline())
        broker = psutil.Process(pid)
        assert "java" in broker.name()
        owner.kill()
        owner.wait()
    clock = SystemClock()
    deadline_s = clock.monotonic_s() + 10
    while broker.is_running() and broker.status() != psutil.STATUS_ZOMBIE:
        assert clock.monotonic_s() < deadline_s, f"broker {pid} outlived its owner"
        clock.sleep(0.05)


@pytest.mark.slow
def test_three_nodes_go_on_when_one_is_killed(make_kafka):
    with make_kafka(nodes=3) as kafka:
        create_topic(kafka.bootstrap_servers, "t", replicas=3)
        commit_values(kafka.bootstrap_servers, "t", [b"1"])
        kafka.kill(2)
        commit_values(kafka.bootstrap_servers, "t", [b"2"])
        assert read_values(kafka.bootstrap_servers, "t", 2) == [b"1", b"2"]
        kafka.start_node(2)
        assert sorted(kafka.pids) == [1, 2, 3]
