"""A whole run with everything secured: Kafka by SASL_SSL with SCRAM users who may do what docs/security.md
lists and nothing more, calls by TLS and tokens; no secret shows up.

A secret stands in every setting that takes one. Afterwards the logs, the arguments of all processes, every
document and page, Spark's event log and all files below the state folder are searched for each of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import stat
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from confluent_kafka import Producer

from tests.certificates import Authority
from tests.e2e.running_table import SCHEMA, TIDEMARK
from tests.own_ports import own_ports
from tests.secured_kafka import Grant, SecuredKafka, service_grants
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.platform.java import JavaRuntime
from tidemark.stream_runtime.security.roles import Role
from tidemark.stream_runtime.security.tokens import new_token, token_line

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
USER, AIRLINE, STRANGER = "tidemark", "airline", "stranger"
ROWS = 500
WAIT_S = 300.0


class Secrets:
    """What must show up nowhere."""

    def __init__(self) -> None:
        self.kafka, self.key, self.registry, self.storage = (
            f"SENTINEL{name}{SystemIds().uuid()[:8]}" for name in ("kafka", "key", "registry", "storage")
        )
        self.operator, self.reader, self.stranger = (new_token(SystemIds()) for _ in range(3))
        self.run = ""

    def shown_in(self, text: str) -> list[str]:
        return [name for name, secret in vars(self).items() if secret and secret in text]


class SecuredRun:
    """`tidemark run` of a table whose every way in and out is secured."""

    def __init__(self, folder: Path, kafka: SecuredKafka, authority: Authority, secrets: Secrets) -> None:
        self.folder, self.secrets, self._kafka = folder, secrets, kafka
        self.state = folder / "state"
        self.config = folder / "accounts.yaml"
        self.client = authority.issue("client.internal", password=secrets.key)
        served = authority.issue("localhost", "127.0.0.1")
        self.authority = authority
        (folder / "accounts.avsc").write_text(json.dumps(SCHEMA))
        tokens = folder / "tokens"
        tokens.touch(mode=0o600)
        lines = [
            token_line(secrets.operator, [Role.OPERATE], "anna"),
            token_line(secrets.reader, [Role.READ], "grafana"),
        ]
        tokens.write_text("\n".join(lines))
        (self.ui_port,) = own_ports(1)
        (folder / "events").mkdir()
        self.document: dict[str, Any] = {
            "table": {"name": "accounts", "path": "./table", "record_key": ["id"], "partition": ["region"]}
            | {"schema": "accounts.avsc", "index": {"shards": 2}},
            "input": {"topics": ["accounts-in"], "partitions": 1, "framing": "none"}
            | {"schema_registry": {"url": "https://r:1", "basic.auth.user.info": "me:${REGISTRY}"}},
            "kafka": {
                **self.kafka_settings("${KAFKA_USER}", "${KAFKA_PASSWORD}", "${KEY_PASSWORD}"),
                "debug": "conf,security",
            },
            "state": {"path": "./state", "memory": "128MiB", "disk": "1GiB"},
            "epoch": {"interval": "500ms"},
            "services": {"coordinator": "127.0.0.1:0", "metrics": "127.0.0.1:0"},
            "security": {
                "tls": {
                    "certificate": str(served.certificate),
                    "key": str(served.key),
                    "ca": str(authority.ca),
                },
                "tokens": {"file": "tokens"},
            },
            "spark": {
                "spark.master": "local[2]",
                "spark.driver.memory": "512m",
                "spark.hadoop.fs.s3a.secret.key": "${STORAGE}",
                "spark.ui.enabled": True,
                "spark.ui.port": self.ui_port,
                "spark.eventLog.enabled": True,
                "spark.eventLog.dir": (folder / "events").as_uri(),
            },
        }
        self.config.write_text(yaml.safe_dump(self.document))
        self._process: subprocess.Popen[bytes] | None = None

    def kafka_settings(self, user: str, password: str, key_password: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self._kafka.secured_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256" if user == AIRLINE else "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.authority.ca),
            "ssl.certificate.location": str(self.client.certificate),
            "ssl.key.location": str(self.client.key),
            "ssl.key.password": key_password,
        }

    def environment(self, token: str = "", **changes: str) -> dict[str, str]:
        given = {
            "KAFKA_USER": USER,
            "KAFKA_PASSWORD": self.secrets.kafka,
            "KEY_PASSWORD": self.secrets.key,
            "REGISTRY": self.secrets.registry,
            "STORAGE": self.secrets.storage,
            **({"TIDEMARK_TOKEN": token} if token else {}),
        }
        return {**os.environ, **given, **changes}

    def start(self) -> None:
        with (self.folder / "run.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(TIDEMARK), "run", "-c", str(self.config)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=self.environment(),
            )
        end = time.monotonic() + WAIT_S
        while not self.is_complete():
            assert self._process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.5)
        self.secrets.run = (self.state / "run.token").read_text().strip()

    def is_complete(self) -> bool:
        # A process for every look would keep a small machine from what is waited for.
        if "serving table accounts" not in (self.folder / "run.log").read_text():
            return False
        answer = self.cli("status", "--json", token=self.secrets.reader)
        if answer.returncode != 0:
            return False
        document = json.loads(answer.stdout)
        return bool(all(document["services"].values()) and document["writer"]["asked"])

    def cli(
        self, *arguments: str, token: str = "", code: int | None = None, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(TIDEMARK), *arguments, "-c", str(self.config)],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
            env=self.environment(token, **changes),
        )
        assert self.secrets.shown_in(done.stdout + done.stderr) == [], arguments
        assert code is None or done.returncode == code, (done.stderr, self.said())
        return done

    def feed(self) -> None:
        settings = self.kafka_settings(AIRLINE, self.secrets.kafka, self.secrets.key)
        producer = Producer({**settings, "log_level": 2})
        for number in range(ROWS):
            row = {"id": f"a{number}", "region": f"r{number % 3}", "at": number, "balance": 1.5}
            producer.produce("accounts-in", json.dumps(row).encode())
        assert producer.flush(120.0) == 0

    def processes(self) -> list[psutil.Process]:
        assert self._process is not None
        own = psutil.Process(self._process.pid)
        return [own, *own.children(recursive=True)]

    def said(self) -> str:
        logs = [self.folder / "run.log", *sorted((self.state / "logs").glob("*.log"))]
        return "\n".join(f"--- {log.name}\n{log.read_text()[-2_000:]}" for log in logs if log.exists())

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(120.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(30.0)


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, java: JavaRuntime, secrets: Secrets
) -> Iterator[SecuredRun]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "pki")
    kafka = SecuredKafka(folder / "broker", java, authority)
    with kafka:
        # A run's services share one configuration, and so one user: it may do what they may together.
        grants = [each for one in service_grants("accounts", "accounts-in").values() for each in one]
        kafka.add_user(USER, secrets.kafka, grants)
        writes = Grant("topic", "accounts-in", ("WRITE",))
        kafka.add_user(AIRLINE, secrets.kafka, [writes], "SCRAM-SHA-256")
        kafka.add_user(STRANGER, secrets.kafka)
        run = SecuredRun(folder, kafka, authority, secrets)
        try:
            run.start()
            run.feed()
            run.cli("flush", "--timeout", "240s", token=secrets.operator, code=0)
            yield run
        finally:
            run.stop()


def page(port: int, path: str, headers: Mapping[str, str] | None = None) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=dict(headers or {}))
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def page_if_there(port: int, path: str) -> str:
    try:
        return page(port, path)
    except urllib.error.HTTPError as error:
        with error:  # it holds the connection
            if error.code != 404:
                raise
        return ""


def test_all_records_came_through_sasl_and_tls(running: SecuredRun) -> None:
    document = json.loads(running.cli("status", "--json", token=running.secrets.reader, code=0).stdout)
    assert document["records"]["committed"]["inserts"] == ROWS
    running.cli("verify", code=0)


def test_roles_hold_for_the_command_line(running: SecuredRun) -> None:
    secrets = running.secrets
    running.cli("lookup", "a7", token=secrets.reader, code=0)
    assert "needs the role operate" in running.cli("pause", token=secrets.reader, code=2).stderr
    assert "token is not known" in running.cli("status", token=secrets.stranger, code=2).stderr
    # Without a token of their own, commands of the user who runs the table use the run's.
    status = running.cli("status", "--json", code=0).stdout
    refused = {reason: count for reason, count in json.loads(status)["refused_calls"].items() if count}
    assert refused == {"bad_token": 1, "role": 1}


def test_wrong_password_is_an_error_that_shows_none(running: SecuredRun) -> None:
    wrong = f"{running.secrets.kafka}x"
    done = running.cli("doctor", "--timeout", "120s", KAFKA_PASSWORD=wrong)
    assert re.search(r"kafka +fails .*check .*sasl.username, sasl.password", done.stdout), done.stdout
    assert wrong not in done.stdout + done.stderr


def test_a_user_without_rights_is_told_which_it_lacks(running: SecuredRun) -> None:
    """What rests on a right fails with what to grant; nothing is taken for missing that is only hidden."""
    done = running.cli("doctor", "--timeout", "120s", "--json", code=1, KAFKA_USER=STRANGER)
    found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert found["kafka"]["status"] == "ok"
    for name, right in (
        ("kafka settings", "DESCRIBE_CONFIGS"),
        ("input topics", "--topic accounts-in --operation DESCRIBE --operation READ"),
        ("own topics", "kafka-acls --add --topic accounts. --resource-pattern-type prefixed"),
        ("transactions", "docs/security.md has the ACLs"),
    ):
        assert right in str(found[name]["findings"]), found[name]
        assert found[name]["status"] == ("warning" if name == "kafka settings" else "fails")
    # Nobody listens there.
    assert found["schema registry"]["status"] == "fails"
    assert "input.schema_registry" in found["schema registry"]["findings"][0]["remedy"]
    settings = running.kafka_settings(STRANGER, "${KAFKA_PASSWORD}", "${KEY_PASSWORD}")
    given = [part for key, value in settings.items() for part in ("--kafka", f"{key}={value}")]
    init = subprocess.run(
        [str(TIDEMARK), "init", "--topic", "accounts-in", *given, "--out", str(running.folder / "x.yaml")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        env=running.environment(),
    )
    assert init.returncode != 0
    assert "accounts-in" in init.stderr
    assert "this user lacks an ACL" in init.stderr
    assert running.secrets.shown_in(init.stdout + init.stderr) == []
    assert not (running.folder / "x.yaml").exists()


def test_http_ports_ask_for_the_token(running: SecuredRun) -> None:
    run_file = json.loads((running.state / "run.json").read_text())
    port = int(run_file["metrics"].rpartition(":")[2])
    with pytest.raises(urllib.error.HTTPError) as refused:
        page(port, "/metrics")
    with refused.value:  # it holds the connection
        assert refused.value.code == 401
    metrics = page(port, "/metrics", {"Authorization": f"Bearer {running.secrets.reader}"})
    assert 'tidemark_run_service_up{role="writer"' in metrics
    assert running.secrets.shown_in(metrics) == []


def test_no_process_has_a_secret_among_its_arguments(running: SecuredRun) -> None:
    lines = []
    for process in running.processes():
        # One that has just ended shows no arguments to anybody.
        with contextlib.suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    assert any("java" in line for line in lines)
    assert running.secrets.shown_in("\n".join(lines)) == []


def test_documents_show_no_secret(running: SecuredRun) -> None:
    for command in (["status"], ["status", "--json"], ["config", "show"], ["config", "show", "--effective"]):
        assert running.cli(*command, code=0).stdout
    assert running.secrets.shown_in((running.state / "run.json").read_text()) == []


def test_sparks_pages_and_event_log_show_no_secret(running: SecuredRun) -> None:
    application = json.loads(page(running.ui_port, "/api/v1/applications"))[0]["id"]
    paths = ["/environment/", "/jobs/", "/stages/", "/storage/", "/executors/", "/SQL/", "/StreamingQuery/"]
    paths += [
        f"/api/v1/applications/{application}/{each}" for each in ("environment", "jobs", "sql", "stages")
    ]
    read = "".join(page_if_there(running.ui_port, path) for path in paths)
    assert "spark.hadoop.fs.s3a.secret.key" in read
    assert running.secrets.shown_in(read) == []


def test_files_show_no_secret_and_are_for_their_owner_alone(running: SecuredRun) -> None:
    """After the end, when all is written. What holds a secret by its purpose is for its owner alone."""
    running.stop()
    held = {running.state / "writer" / "spark" / "spark-conf" / "spark-defaults.conf"}
    searched = 0
    for folder in (running.state, running.folder / "table", running.folder / "events"):
        for file in folder.rglob("*"):
            if not file.is_file() or file.is_symlink():
                continue
            searched += 1
            shown = running.secrets.shown_in(file.read_bytes().decode("latin-1"))
            assert file in held or shown == [], (file, shown)
    assert searched > 20
    assert running.secrets.shown_in((running.folder / "run.log").read_text()) == []
    assert not (running.state / "run.token").exists()
    for file in held:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    assert any((running.folder / "events").rglob("*")), "Spark wrote its event log"
