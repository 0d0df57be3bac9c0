"""`tidemark config show` and `check`: every key with its source, no secret, and what cannot work is named."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.table_files import write_config
from tidemark.cli.main import main
from tidemark.config import load_config
from tidemark.config.model import LimitsConfig, TableConfigFile

MORE = """\
limits: &bounds {key_bytes: 4KiB, lease: "${LEASE:-90s}"}
verify: {every_commits: "${EVERY}"}
"""
KAFKA = 'kafka: {bootstrap.servers: "${BROKER}:9092", sasl.username: ann, sasl.password: "${PASSWORD}"'
SECRETS = """, ssl.key.pem: SECRET-PEM}
spark: {spark.hadoop.fs.s3a.secret.key: SECRET-KEY, spark.driver.memory: 1g}
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (("BROKER", "k1"), ("PASSWORD", "SECRET-PASSWORD"), ("EVERY", "7")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("LEASE", raising=False)
    file = write_config(tmp_path)
    lines = [line for line in file.read_text().splitlines() if not line.startswith("kafka")]
    file.write_text("\n".join(lines) + "\n" + MORE + KAFKA + SECRETS)
    return str(file)


def settings(config: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main(["config", "show", "--effective", "-c", config, "--json"]) == 0
    return {each["key"]: each for each in json.loads(capsys.readouterr().out)["settings"]}


def line_of(config: str, text: str) -> int:
    lines = Path(config).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_every_value_has_its_source(config: str, capsys: pytest.CaptureFixture[str]):
    found = settings(config, capsys)
    shown = {key: (each["value"], each["source"]) for key, each in found.items()}
    assert shown["table.name"] == ("orders", "line 2")
    assert shown["table.record_key"] == (["id"], "line 4")
    assert shown["table.index.lanes"] == (2, "worked out from other keys")
    assert shown["state.memory"] == ("512MiB", "default")
    limits = line_of(config, "limits:")
    assert shown["limits.key_bytes"] == ("4KiB", f"line {limits}")
    assert shown["limits.lease"] == ("90s", f"line {limits}, default of ${{LEASE}}")
    assert shown["verify.every_commits"] == (7, f"line {limits + 1}, environment variable EVERY")
    assert found["kafka.bootstrap.servers"]["environment"] == ["BROKER"]
    assert shown["kafka.bootstrap.servers"][0] == "k1:9092"


def test_every_key_of_the_model_is_shown(config: str, capsys: pytest.CaptureFixture[str]):
    found = settings(config, capsys)
    loaded = load_config(config)
    sections = {each.name for each in dataclasses.fields(TableConfigFile)} - {"file"}
    given = {"hoodie"}  # passed on as it is, and empty here
    assert {key.split(".")[0] for key in found} == sections - given
    limits = {each.metadata["key"] or each.name for each in dataclasses.fields(LimitsConfig)}
    assert {key.removeprefix("limits.") for key in found if key.startswith("limits.")} == limits
    assert loaded.limits.lease_ms == 90_000


@pytest.mark.parametrize("more", [[], ["--effective"], ["--json"], ["--effective", "--json"]], ids=str)
def test_secrets_are_never_shown(config: str, more: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(["config", "show", "-c", config, *more]) == 0
    captured = capsys.readouterr()
    assert "SECRET" not in captured.out + captured.err
    assert "ann" in captured.out


def test_shown_values_load_to_the_same_configuration(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """What is shown is what one would write: every section of the model, written out, is the same again."""
    written: dict[str, Any] = {}
    for key, each in settings(config, capsys).items():
        section, _, rest = key.partition(".")
        if section in ("kafka", "spark") or each["value"] is None:
            continue
        at = written.setdefault(section, {})
        *folders, leaf = rest.split(".")
        for folder in folders:
            at = at.setdefault(folder, {})
        at[leaf] = each["value"]
    written["kafka"] = {"bootstrap.servers": "k1:9092"}
    again = tmp_path / "again.yaml"
    again.write_text(json.dumps(written))
    first, second = load_config(config), load_config(again)
    for section in ("table", "input", "state", "epoch", "verify", "services", "limits"):
        assert getattr(first, section) == getattr(second, section), section


def test_show_needs_no_usable_configuration(config: str, capsys: pytest.CaptureFixture[str]):
    Path(config).write_text("table: {nme: orders}\ninput: {topics: [a]}\n")
    assert main(["config", "show", "-c", config]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == {
        "table": {"nme": "orders"},
        "input": {"topics": ["a"]},
    }
    assert main(["config", "check", "-c", config]) == 2
    assert "table.nme: unknown key; did you mean name?" in capsys.readouterr().err


def test_merged_mappings_show_the_line_where_they_stand(config: str, capsys: pytest.CaptureFixture[str]):
    file = Path(config)
    text = file.read_text().replace("epoch:", "epochs:")
    file.write_text(text + "epoch:\n  <<: &rates\n    interval: 3s\n  max_bytes: 1MiB\n")
    found = settings(config, capsys)
    assert found["epoch.interval"]["line"] == line_of(config, "interval: 3s")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("kafka: {", "kafka: {no.such.setting: 1, "), "no.such.setting"),
        (("kafka: {", "kafka: {acks: 1, "), "kafka.acks is set by Tidemark"),
        (("ordering: at", "ordering: note"), "note"),
        (("path: ./table", "path: s3://bucket/table"), "not on a local file system"),
    ],
)
def test_check_names_what_cannot_work(
    config: str, change: tuple[str, str], says: str, capsys: pytest.CaptureFixture[str]
):
    file = Path(config)
    # SASL and TLS settings are for a broker that has them; the client would read them here.
    file.write_text(file.read_text().replace(*change).replace(", ssl.key.pem: SECRET-PEM", ""))
    assert main(["config", "check", "-c", config]) != 0
    assert says in capsys.readouterr().err


def test_check_warns_of_hudi_options_without_effect(config: str, capsys: pytest.CaptureFixture[str]):
    file = Path(config)
    file.write_text(file.read_text().replace(", ssl.key.pem: SECRET-PEM", "") + "hoodie: {hoodie.x: 1}\n")
    assert main(["config", "check", "-c", config, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["warnings"] == ["hoodie: hoodie.x has no effect: Tidemark writes itself"]


def test_check_names_everything_that_cannot_work_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = write_config(tmp_path)
    wrong = (
        "services: {coordinator: '0.0.0.0:7411', metrics: '0.0.0.0:7412'}\n"
        "hoodie: {hoodie.parquet.max.file.size: many}\n"
    )
    lines = [each for each in file.read_text().splitlines() if not each.startswith(("state", "services"))]
    file.write_text("\n".join([*lines, "state: {path: ./state, memory: 512}", wrong]))
    assert main(["config", "check", "-c", str(file)]) == 2
    said = capsys.readouterr().err
    for part in (
        "4 things are wrong",
        "hoodie.parquet.max.file.size",
        "0.0.0.0:7411",
        "0.0.0.0:7412",
        "state.memory is 512",
    ):
        assert part in said


def test_check_names_every_key_that_cannot_be_read_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = write_config(tmp_path)
    wrong = (
        "epoch: {interval: soon, max_byte: 1}\nlimits: {key_bytes: 32MiB, lease: x}\nmore: 1\n"
        "verify: [1]\nspark: {spark.master: 'loca[2'}\n"
    )
    lines = [
        each.replace("ordering: at", "ordering: att")
        for each in file.read_text().splitlines()
        if not each.startswith(("epoch", "limits", "spark", "verify", "kafka"))
    ]
    file.write_text("\n".join([*lines, wrong]))
    assert main(["config", "check", "-c", str(file)]) == 2
    said = capsys.readouterr().err
    for part in ("things are wrong", "epoch.interval", "epoch.max_byte", "limits.lease", "more: unknown key"):
        assert part in said
    for part in ("verify: must be a mapping", "spark.master", "no field att", "kafka.bootstrap.servers"):
        assert part in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("services: {coordinator: '0.0.0.0:7411'}", "security.tls"),
        ("services: {metrics: '0.0.0.0:7412'}", "services.allow_remote"),
    ],
)
def test_check_refuses_what_run_would_refuse(
    tmp_path: Path, more: str, said: str, capsys: pytest.CaptureFixture[str]
):
    file = write_config(tmp_path)
    lines = [each for each in file.read_text().splitlines() if not each.startswith("services")]
    file.write_text("\n".join([*lines, more, ""]))
    assert main(["config", "check", "-c", str(file)]) == 2
    assert said in capsys.readouterr().err
