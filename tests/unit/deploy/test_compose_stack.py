"""How the compose test asks the engine: a `docker` that keeps a list of what it was asked stands for it."""

import os
import tomllib

import pytest

from tests.compose.engine import Engine
from tests.compose.stack import ROOT, Stack, StackError

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
exec) [ -e "$SAYS.fails" ] && { cat "$SAYS.fails" >&2; exit 126; }
    while read -r _; do cat "$SAYS"; [ -e "$SAYS.last" ] && exit; done ;;
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
    found_first = f"{asked.parent}:{os.environ['PATH']}"
    engine = Engine({"PATH": found_first, "ASKED": str(asked), "SAYS": str(asked.parent / "says")})
    stack = Stack(engine, "project", {})
    yield stack
    stack.end_asking()


@pytest.fixture
def says(asked):
    """What a process in the coordinator's container answers to each question."""
    file = asked.parent / "says"
    file.write_text('{"epoch": 1}\n')
    return file


@pytest.fixture
def fails(says):
    """There, a process in the coordinator's container ends at once, with this on stderr."""
    file = says.parent / "says.fails"
    file.write_text("no such interpreter\n")
    return file


def processes(asked):
    """How many were started in containers."""
    return sum(line.startswith("exec ") for line in asked.read_text().splitlines())


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


def test_questions_for_the_status_start_one_process(stack, asked, says):
    assert stack.status() == {"epoch": 1}
    says.write_text('{"epoch": 2}\n')
    assert stack.status() == {"epoch": 2}
    assert processes(asked) == 1


def test_while_nobody_answers_there_is_no_status(stack, says):
    says.write_text("null\n")
    assert stack.status() is None
    says.write_text('{"epoch": 1}\n')
    assert stack.status() == {"epoch": 1}


def test_after_the_end_of_the_container_another_process_is_asked(stack, asked, says):
    (says.parent / "says.last").touch()
    assert stack.status() == {"epoch": 1}
    # The first one has ended, or ends without an answer.
    assert stack.status() is None
    (says.parent / "says.last").unlink()
    assert stack.status() == {"epoch": 1}
    assert processes(asked) == 2


def test_an_answer_that_is_cut_off_is_none(stack, says):
    says.write_text('{"epoch": ')
    (says.parent / "says.last").touch()
    assert stack.status() is None


def test_what_a_process_without_an_answer_says_is_in_the_error(stack, fails):
    with pytest.raises(StackError, match=r"after 0 s: no epoch; .* said: no such interpreter$"):
        stack.wait(lambda: stack.status() is not None, 0.0, lambda: "no epoch")


def test_what_it_said_is_no_matter_once_there_is_an_answer(stack, fails):
    assert stack.status() is None
    fails.unlink()
    assert stack.status() == {"epoch": 1}
    with pytest.raises(StackError, match=r"after 0 s: no epoch$"):
        stack.wait(lambda: False, 0.0, lambda: "no epoch")


def test_a_process_in_a_container_has_the_interpreter_of_the_containers_command(stack, asked, says):
    stack.status()
    [line] = [line for line in asked.read_text().splitlines() if line.startswith("exec -i")]
    command = (ROOT / "deploy/tidemark.sh").read_text().splitlines()[-1]
    assert command.split()[:2] == ["exec", line.split()[3]]


def test_the_containers_command_is_the_installed_one():
    installed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["tidemark"]
    command = (ROOT / "deploy/tidemark.sh").read_text().splitlines()[-1].split()
    assert command[2:4] == ["-m", installed.partition(":")[0]]
