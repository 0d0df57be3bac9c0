"""Log lines that one can search and share, and metrics that one can scrape."""

from __future__ import annotations

import io
import json
import logging

import pytest
from prometheus_client import generate_latest

from tidemark.config.log_format import LogFormat
from tidemark.redaction import redact_settings, redact_text
from tidemark.stream_runtime.logging import bound, configure_logging
from tidemark.stream_runtime.metrics import Metrics, MetricsError


@pytest.fixture
def stream():
    text = io.StringIO()
    yield text
    root = logging.getLogger("tidemark")
    root.handlers = []
    root.propagate = True


def test_json_line_carries_bound_and_extra_fields(stream):
    configure_logging("assigner", LogFormat.JSON, stream=stream)
    log = logging.getLogger("tidemark.assigner")
    with bound(table="flights", epoch=7, instant=None):
        with bound(term=12):
            log.info("tagged %d records", 3, extra={"lane": 2})
        log.info("again")
    log.debug("below the level")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == "tagged 3 records"
    assert (
        first["service"],
        first["level"],
        first["table"],
        first["epoch"],
        first["term"],
        first["lane"],
    ) == (
        "assigner",
        "info",
        "flights",
        7,
        12,
        2,
    )
    assert "instant" not in first
    assert "term" not in second
    assert first["time"].endswith("+00:00")


def test_text_line_is_one_line_and_unambiguous(stream):
    configure_logging("writer", stream=stream)
    logging.getLogger("tidemark").warning("two\nlines of a=b", extra={"path": "a b"})
    (line,) = stream.getvalue().splitlines()
    assert r'message="two\nlines of a=b" path="a b"' in line
    assert " level=warning service=writer " in line


def test_exception_is_logged_with_its_trace(stream):
    configure_logging("writer", LogFormat.JSON, stream=stream)
    try:
        raise ValueError("password=hunter2 was wrong")
    except ValueError:
        logging.getLogger("tidemark").exception("failed")
    line = json.loads(stream.getvalue())
    assert "ValueError" in line["error"]
    assert "hunter2" not in stream.getvalue()


def test_configuring_again_does_not_double_lines(stream):
    configure_logging("writer", stream=stream)
    configure_logging("writer", stream=stream)
    logging.getLogger("tidemark").info("once")
    assert len(stream.getvalue().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("sasl.password=abc, next=1", "sasl.password=***, next=1"),
        ("{'ssl.key.password': 'a b'}", "{'ssl.key.password': ***}"),
        ("s3://me:secret@host/path", "s3://***@host/path"),
        ("nothing to hide here: 5", "nothing to hide here: 5"),
    ],
)
def test_secrets_in_texts_are_hidden(text, clean):
    assert redact_text(text) == clean


def test_secrets_in_settings_and_fields_are_hidden(stream):
    settings = {
        "sasl.password": "abc",
        "sasl.jaas.config": "x",
        "bootstrap.servers": "a:1",
        "sasl.username": "u",
        "basic.auth.user.info": "me:abc",
        "azure.account.key": "abc",
        "fs.azure.sas.box.lake": "abc",
        "fs.s3a.access.key": "abc",
    }
    assert redact_settings(settings) == {
        "sasl.password": "***",
        "sasl.jaas.config": "***",
        "bootstrap.servers": "a:1",
        "sasl.username": "u",
        "basic.auth.user.info": "***",
        "azure.account.key": "***",
        "fs.azure.sas.box.lake": "***",
        "fs.s3a.access.key": "***",
    }
    configure_logging("writer", stream=stream)
    logging.getLogger("tidemark").info("x", extra={"api_token": "abc"})
    assert "abc" not in stream.getvalue()


def test_metrics_are_exposed_under_one_scheme():
    metrics = Metrics("assigner", "flights")
    metrics.counter("records", "Records tagged", ["lane"]).labels("3").inc(5)
    metrics.gauge("uncommitted_entries", "In memory").set(7)
    metrics.histogram("commit_seconds", "Transactions").observe(0.003)
    held = metrics.counter_family("tagged_records", "Kept elsewhere", ["tag"])
    held.add_metric(["insert"], 2)
    metrics.on_scrape(lambda: [held])
    page = generate_latest(metrics.registry).decode()
    assert 'tidemark_assigner_records_total{lane="3",table="flights"} 5.0' in page
    assert 'tidemark_assigner_uncommitted_entries{table="flights"} 7.0' in page
    assert 'tidemark_assigner_commit_seconds_bucket{le="0.005",table="flights"} 1.0' in page
    assert 'tidemark_assigner_tagged_records_total{table="flights",tag="insert"} 2.0' in page
    assert 'tidemark_assigner_info{table="flights"} 1.0' in page
    assert 'tidemark_assigner_process_resident_memory_bytes{table="flights"}' in page
    assert "_created" not in page


def test_metric_outside_the_scheme_is_refused():
    metrics = Metrics("assigner", "flights")
    with pytest.raises(MetricsError, match="lower case"):
        metrics.counter("Records-Total", "x")
    with pytest.raises(MetricsError, match="'lag' does not end with a unit"):
        metrics.gauge("lag", "x")
    with pytest.raises(MetricsError, match="at most 4 labels"):
        metrics.gauge("x_seconds", "x", ["a", "b", "c", "d", "e"])


def test_every_line_names_the_table_and_is_one_line_of_json(stream):
    configure_logging("coordinator", LogFormat.JSON, stream=stream, table="flights")
    log = logging.getLogger("tidemark.coordinator")
    known = {"term": 4, "epoch": 12, "attempt": 1, "instant": "20130101000000000"}
    with bound(**known):
        log.info("epoch %d is\ncommitted", 12, extra={"took_ms": {"job": 9.5}})
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    expected = {"table": "flights", "service": "coordinator", "took_ms": {"job": 9.5}, **known}
    assert expected.items() <= found.items()
    assert found["message"] == "epoch 12 is\ncommitted"


@pytest.mark.parametrize("log_format", list(LogFormat))
@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "x\x9b31m", "a\x7f", "b\u202e", "c\x85d", "\U000e0001", "plain\x07"]
)
def test_a_log_line_holds_nothing_that_a_terminal_obeys(log_format, hostile):
    stream = io.StringIO()
    configure_logging("assigner", log_format, stream=stream)
    with bound(lane=hostile):
        logging.getLogger("tidemark.x").warning("%s", hostile)
    assert stream.getvalue().rstrip("\n").isprintable()
    if log_format is LogFormat.JSON:
        line = json.loads(stream.getvalue())
        assert (line["message"], line["lane"]) == (hostile, hostile)


@pytest.mark.parametrize(
    "text",
    [
        "refused api_key=hush-hush",
        "refused apiKey: hush-hush, more",
        "pwd=hush-hush",
        "PWD='hush-hush'",
        "ssl.key.passphrase=hush-hush",
        "s3.access-key=hush-hush",
        "-----BEGIN RSA PRIVATE KEY-----\nhush-hush\n-----END RSA PRIVATE KEY----- behind",
        "-----BEGIN PRIVATE KEY-----hush-hush cut off",
        "a -----BEGIN ENCRYPTED PRIVATE KEY-----\\nhush-hush\\n-----END ENCRYPTED PRIVATE KEY-----",
    ],
)
def test_keys_in_free_text_are_hidden(text):
    assert "hush" not in redact_text(text)
