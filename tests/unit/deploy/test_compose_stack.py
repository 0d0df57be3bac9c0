"""How the compose test asks the engine: a `docker` that keeps a list of what it was asked stands for it."""

import os

import pytest

from tests.compose.engine import Engine
from tests.compose.stack import Stack, StackError

DOCKER = """#!/bin/sh
echo "$@" >> "$ASKED"
case "$1" in
ps) for each; do case "$each" in *.service=gone) exit 0 ;; *.service=*) echo "id-${each##*=}" ;; esac; done ;;
inspect)
    shift
    printf '['
    for each; do
        printf '%s{"Id": "%s", ' "$comma" "$each"
        printf '"State": {"Status": "running", "Health": {"Status": "healthy"}}}'
        comma=,
    done
    printf ']' ;;
esac
"""


@pytest.fixture
def asked(tmp_path):
    """The file with a line for each call of `docker`."""
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)
    return tmp_path / "asked"


@pytest.fixture
def stack(asked):
    engine = Engine({"PATH": f"{asked.parent}:{os.environ['PATH']}", "ASKED": str(asked)})
    return Stack(engine, "project", {})


def test_each_service_has_the_state_of_its_own_container(stack):
    states = stack.states(["kafka", "writer"])
    assert {service: state["Id"] for service, state in states.items()} == {
        "kafka": "id-kafka",
        "writer": "id-writer",
    }


def test_a_look_at_all_services_is_one_question(stack, asked):
    stack.wait_healthy(["kafka", "writer"], 60.0)
    asked.unlink()
    stack.wait_healthy(["kafka", "writer"], 60.0)
    assert asked.read_text().splitlines() == ["inspect id-kafka id-writer"]


def test_a_service_without_a_container_is_named_each_time(stack):
    for _ in range(2):
        with pytest.raises(StackError, match="0 containers of gone"):
            stack.state("gone")
