"""deploy/compose.sh with an engine that only writes down what it is told: what is asked for, what is said."""

import os
import pty
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# `inspect` knows the images of $THERE; nothing can be pulled; compose comes as a plugin.
DOCKER = """#!/bin/sh
echo "$*" >>"$SEEN"
case "$1 $2" in
    "version "*) [ -z "${DEAD:-}" ] || { echo "client"; echo "permission denied" >&2; exit 1; } ;;
    "image inspect") case " $THERE " in *" $3 "*) exit 0 ;; *) exit 1 ;; esac ;;
    "pull "*) exit 1 ;;
    "volume ls") [ -z "${VOLUMES:-}" ] || printf '%s\\n' $VOLUMES ;;
    "compose --profile")
        [ "$4" != config ] || printf 'kafka\\ncoordinator\\nprometheus\\ngrafana\\n'
        [ "$4" != up ] || exit "${UP:-0}"
        ;;
    "compose up") exit "${UP:-0}" ;;
esac
"""
TAR = """#!/bin/sh
echo "tar $*" >>"$SEEN"
"""
BASE, PROMETHEUS, GRAFANA = "base:1", "prometheus:1", "grafana:1"


def run(tmp_path, command, there=(BASE,), typed=None, **variables):
    """The finished script, and each call of docker. `typed`: a line at a terminal; None: there is none."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    for name, text in (("docker", DOCKER), ("tar", TAR), ("python", "#!/bin/sh\n")):
        (binaries / name).write_text(text)
        (binaries / name).chmod(0o755)
    environment = {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "SEEN": str(tmp_path / "seen"),
        "THERE": " ".join(there),
        "PYTHON": str(binaries / "python"),
        "TIDEMARK_BASE_IMAGE": BASE,
        "TIDEMARK_GRAFANA_IMAGE": GRAFANA,
        "TIDEMARK_PROMETHEUS_IMAGE": PROMETHEUS,
        **variables,
    }
    leader, terminal = pty.openpty()
    if typed is not None:
        os.write(leader, f"{typed}\n".encode())
    done = subprocess.run(
        ["sh", str(ROOT / "deploy" / "compose.sh"), *command],
        env=environment,
        stdin=subprocess.DEVNULL if typed is None else terminal,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    os.close(terminal)
    os.close(leader)
    return done, (tmp_path / "seen").read_text().splitlines()


def test_up_says_at_its_end_where_everything_is(tmp_path):
    done, seen = run(tmp_path, ["up"], TIDEMARK_WEB_PORT="7999")
    assert done.returncode == 0, done.stderr
    assert seen[-1] == "compose up --detach --no-build"
    assert "http://127.0.0.1:7999" in done.stdout
    assert "tidemark status -c /etc/tidemark/flights.yaml" in done.stdout
    assert "Prometheus" not in done.stdout


def test_each_image_is_sent_what_the_stages_up_to_its_own_copy(tmp_path):
    done, seen = run(tmp_path, ["build"])
    assert done.returncode == 0, done.stderr
    sent = [set(line.split()[1:]) for line in seen if line.startswith("tar ")]
    copied, expected = {"deploy"}, {}
    for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines():
        match line.split():
            case ["FROM", _, "AS", stage]:
                expected[stage] = copied
            case ["COPY", source, _] if source.startswith("build/"):
                copied |= {source}
                expected[stage] = set(copied)
    targets = [line.partition("--target ")[2].split()[0] for line in seen if line.startswith("build ")]
    assert targets == ["kafka", "service", "spark", "writer"]
    for target, folders in zip(targets, sent, strict=True):
        assert {each for each in folders if not each.startswith("--")} == expected[target]
    assert len(expected["writer"]) == 8


def test_observability_with_both_images_starts_both(tmp_path):
    done, seen = run(tmp_path, ["up"], there=(BASE, GRAFANA), PROFILES="observability")
    assert done.returncode == 0, done.stderr
    assert seen[-1] == "compose --profile observability up --detach --no-build"
    assert "http://127.0.0.1:13000" in done.stdout
    assert "left out" not in done.stderr


def test_observability_without_grafanas_image_starts_the_others_and_says_so(tmp_path):
    done, seen = run(tmp_path, ["up"], PROFILES="observability")
    assert done.returncode == 0, done.stderr
    assert seen[-1] == "compose --profile observability up --detach --no-build kafka coordinator prometheus"
    assert f"Grafana is left out: {GRAFANA} cannot be pulled here" in done.stderr
    assert "http://127.0.0.1:19090" in done.stdout
    assert "13000" not in done.stdout


def test_up_that_fails_says_where_to_look(tmp_path):
    done, _ = run(tmp_path, ["up"], UP="1")
    assert done.returncode == 1
    assert "deploy/compose.sh -- logs" in done.stderr
    assert "Running" not in done.stdout


@pytest.mark.parametrize("command", [["check"], ["up"], ["down"], ["--", "ps"]])
def test_without_an_engine_nothing_is_built_and_the_clients_reason_is_said(tmp_path, command):
    done, seen = run(tmp_path, command, DEAD="1")
    assert done.returncode == 1
    assert seen == ["version"]
    assert "no container engine answers" in done.stderr
    assert "permission denied" in done.stderr


DOWN = "compose --profile observability down --remove-orphans"
VOLUMES = "tidemark_warehouse tidemark_kafka"


def test_down_with_volumes_names_them_and_wants_the_projects_name(tmp_path):
    done, seen = run(tmp_path, ["down", "--volumes"], typed="tidemark", VOLUMES=VOLUMES)
    assert done.returncode == 0, done.stderr
    assert VOLUMES in done.stderr
    assert seen[-1] == f"{DOWN} --volumes"


@pytest.mark.parametrize(("typed", "says"), [("yes", "not confirmed"), (None, "add --yes")])
def test_down_with_volumes_changes_nothing_when_nobody_agrees(tmp_path, typed, says):
    done, seen = run(tmp_path, ["down", "-v"], typed=typed, VOLUMES=VOLUMES)
    assert done.returncode == 1
    assert says in done.stderr
    assert not [each for each in seen if each.startswith(DOWN)]


@pytest.mark.parametrize(
    ("given", "passed", "volumes"),
    [
        (["--volumes", "--yes"], " --volumes", VOLUMES),
        (["--yes", "--timeout", "5"], " --timeout 5", VOLUMES),
        (["--volumes"], " --volumes", ""),
        ([], "", VOLUMES),
    ],
)
def test_down_asks_nothing_when_told_so_or_nothing_is_deleted(tmp_path, given, passed, volumes):
    done, seen = run(tmp_path, ["down", *given], VOLUMES=volumes)
    assert done.returncode == 0, done.stderr
    assert seen[-1] == DOWN + passed
