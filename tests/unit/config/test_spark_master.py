"""Which masters the writer serves, and what the `spark:` section must hold beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tidemark.config import ConfigError
from tidemark.config.errors import Problems
from tidemark.config.spark_master import MasterKind, check_spark, parse_master

IMAGE = {"spark.kubernetes.container.image": "tidemark:1"}


def checked(section: Mapping[str, str]) -> None:
    problems = Problems("table.yaml")
    check_spark(problems, Path("table.yaml"), section)
    problems.raise_if_any()


@pytest.mark.parametrize(
    ("text", "kind", "hosts", "loopback"),
    [
        ("local", MasterKind.LOCAL, (), True),
        ("local[4]", MasterKind.LOCAL, (), True),
        ("local[*,3]", MasterKind.LOCAL, (), True),
        ("spark://spark-master:7077", MasterKind.STANDALONE, ("spark-master",), False),
        ("spark://localhost:7077", MasterKind.STANDALONE, ("localhost",), True),
        ("spark://127.0.0.1:1,localhost:2", MasterKind.STANDALONE, ("127.0.0.1", "localhost"), True),
        ("spark://127.0.0.1:1,other:2", MasterKind.STANDALONE, ("127.0.0.1", "other"), False),
        ("spark://[::1]:7077", MasterKind.STANDALONE, ("::1",), True),
        ("yarn", MasterKind.YARN, (), False),
        ("k8s://https://kubernetes.default.svc:443", MasterKind.KUBERNETES, (), False),
        ("k8s://api.example:6443", MasterKind.KUBERNETES, (), False),
    ],
)
def test_served_master_is_told_apart(
    text: str, kind: MasterKind, hosts: tuple[str, ...], loopback: bool
) -> None:
    master = parse_master(text)
    assert (master.kind, master.hosts, master.is_loopback) == (kind, hosts, loopback)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "local[]",
        "mesos://a:1",
        "local-cluster[2,1,512]",
        "spark://host",
        "spark://a:1,b",
        "spark://host:0",
        "spark://host:99999",
        "yarn-client",
        "k8s://",
        "host:7077",
    ],
)
def test_other_master_is_refused_with_those_that_are_served(text: str) -> None:
    with pytest.raises(ConfigError, match=r"spark\.master.*spark://host:port.*yarn.*k8s://"):
        checked({"spark.master": text})


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"master": "yarn"}, r"write `spark\.master`"),
        ({"spark.master": "yarn", "spark.submit.deployMode": "cluster"}, "the writer is the driver"),
        ({"spark.master": "k8s://a:1"}, r"spark\.kubernetes\.container\.image: is required"),
    ],
)
def test_section_with_which_no_writer_could_start_is_refused(section: Mapping[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        checked(section)


@pytest.mark.parametrize(
    "section",
    [
        {},
        {"spark.master": "yarn", "spark.submit.deployMode": "client"},
        {"spark.master": "k8s://a:1", **IMAGE},
    ],
)
def test_section_that_can_work_is_taken(section: Mapping[str, str]) -> None:
    checked(section)
