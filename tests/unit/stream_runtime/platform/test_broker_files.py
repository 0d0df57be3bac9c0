"""Ports, ids and settings that a broker is started with."""

import random
import socket

import pytest

from testing.ids import SeededIds
from tidemark.stream_runtime.platform import broker_files
from tidemark.stream_runtime.platform.errors import PlatformError


def test_cluster_survives_a_restart_of_the_program(tmp_path):
    cluster = broker_files.new_cluster(3, SeededIds(1))
    broker_files.save_cluster(tmp_path, cluster)
    assert broker_files.load_cluster(tmp_path) == cluster
    assert len({port for node in cluster.nodes for port in (node.broker, node.controller)}) == 6
    assert broker_files.load_cluster(tmp_path / "other") is None


def test_taken_port_is_not_chosen():
    with socket.socket() as listener:
        listener.bind((broker_files.HOST, 0))
        listener.listen()
        taken = listener.getsockname()[1]
        assert not broker_files.is_free(taken)
        with pytest.raises(PlatformError, match=f"no 1 free ports between {taken}"):
            broker_files.free_ports(1, random.Random(1), [taken])


def test_chosen_ports_are_none_that_a_client_is_given():
    ports = broker_files.free_ports(20, random.Random(1))
    assert max(ports) < 32_768


@pytest.mark.parametrize(("nodes", "idle_ms"), [(1, "0"), (3, "500")])
def test_a_controller_that_nobody_follows_writes_nothing_while_there_is_no_news(tmp_path, nodes, idle_ms):
    cluster = broker_files.new_cluster(nodes, SeededIds(1))
    assert broker_files.server_settings(cluster, 1, tmp_path)["metadata.max.idle.interval.ms"] == idle_ms


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, "1", "1"), (3, "3", "2")])
def test_internal_topics_are_replicated_as_far_as_there_are_nodes(tmp_path, nodes, replicas, in_sync):
    cluster = broker_files.new_cluster(nodes, SeededIds(1))
    settings = broker_files.server_settings(cluster, 1, tmp_path)
    assert settings["transaction.state.log.replication.factor"] == replicas
    assert settings["transaction.state.log.min.isr"] == in_sync
    assert settings["controller.quorum.voters"].count("@") == nodes


def test_given_settings_win(tmp_path):
    cluster = broker_files.new_cluster(1, SeededIds(1))
    node = broker_files.write_node_files(tmp_path, cluster, 1, {"num.io.threads": "9"})
    lines = (node / "server.properties").read_text().splitlines()
    assert [line for line in lines if line.startswith("num.io.threads")] == ["num.io.threads=9"]


def test_folder_with_a_comma_is_refused(tmp_path):
    cluster = broker_files.new_cluster(1, SeededIds(1))
    with pytest.raises(PlatformError, match="comma"):
        broker_files.write_node_files(tmp_path / "a,b", cluster, 1, {})


def test_cluster_ids_are_what_kafka_takes():
    ids = SeededIds(1)
    for _ in range(500):
        cluster_id = broker_files.new_cluster(1, ids).cluster_id
        assert len(cluster_id) == 22
        assert not cluster_id.startswith("-")
