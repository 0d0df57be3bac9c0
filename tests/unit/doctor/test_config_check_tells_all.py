"""`config check` tells everything that is wrong with a file in one round: each mistake that it finds when it
is the only one is told among all others, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.table_files import SCHEMA, write_config
from tidemark.cli.main import main

# The key's path, its value, and what is said of it.
FAULTS: tuple[tuple[tuple[str, ...], Any, str], ...] = (
    # What cannot be decoded, in each section and in sections of sections.
    (("qqq",), 1, "qqq: unknown key"),
    (("verify",), [1], "verify: must be a mapping"),
    (("epoch", "interval"), "soon", "epoch.interval: must be a duration"),
    (("epoch", "max_byte"), 1, "epoch.max_byte: unknown key; did you mean max_bytes?"),
    (("limits", "lease"), "x", "limits.lease: must be a duration"),
    (("table", "type"), "heap", "table.type: must be one of"),
    (("table", "index", "tombstone_ttl"), 0, "table.index.tombstone_ttl"),
    (("state", "disk"), "much", "state.disk: must be a size"),
    (("services", "web"), "nowhere", "services.web: must be host:port"),
    (("security", "tls", "client_auth"), "maybe", "security.tls.client_auth: must be one of"),
    (("kafka", "client.rack"), [1], "kafka.client.rack: must be a single value"),
    (("telemetry", "otlp_endpoint"), "${NOT_SET_ANYWHERE}", "environment variable NOT_SET_ANYWHERE"),
    (("spark", "spark.app.name"), "${NOT_SET_EITHER}", "environment variable NOT_SET_EITHER"),
    # What does not fit together.
    (("limits", "key_bytes"), "64MiB", "limits.key_bytes: must be below limits.message_bytes"),
    (("limits", "batch_bytes"), "32MiB", "limits.batch_bytes: must be below limits.message_bytes"),
    (("limits", "record_bytes"), "16300KiB", "limits.record_bytes: must be at least 128 KiB below"),
    (("limits", "transaction_interval"), "1h", "limits.transaction_interval: must be below"),
    (("table", "index", "column_stats"), ["day", "nostats"], "no column stats for nostats (the table has no"),
    (("table", "record_key"), ["id", "nokey", "price"], "has no field nokey"),
    (("table", "partition"), ["day", "nopart", "price"], "has no field nopart"),
    (("table", "ordering"), "noorder", "has no field noorder"),
    (("input", "format"), "debezium-avro", "input.schema_registry: is required"),
    (("input", "framing"), "none", "input.framing: must be confluent"),
    (("input", "delete_field"), "gone", "input.delete_field: has no meaning"),
    (("input", "protobuf"), {"descriptor": "orders.avsc", "message": "M"}, "input.protobuf: has no meaning"),
    (("security", "tokens"), {}, "security.tokens: names one of both"),
    (("security", "token"), {}, "security.token: names one of both"),
    (("security", "tls", "key"), "k.pem", "security.tls.certificate: is missing"),
    (("spark", "master"), "yarn", "spark.master: is no key of Spark's"),
    (("spark", "spark.master"), "loca[2", "spark.master: 'loca[2' is no master"),
    (("spark", "spark.submit.deployMode"), "cluster", "spark.submit.deployMode: must be client"),
    # What the parts themselves refuse.
    (("table", "path"), "s3://bucket/table", "s3://bucket/table"),
    (("hoodie", "hoodie.parquet.max.file.size"), "many", "hoodie.parquet.max.file.size is 'many'"),
    (("kafka", "acks"), 1, "kafka.acks is set by Tidemark"),
    (("kafka", "isolation.level"), "x", "kafka.isolation.level is set by Tidemark"),
    (("kafka", "no.such.setting"), 1, "no.such.setting"),
    (("kafka", "nor.this.one"), 1, "nor.this.one"),
    (("kafka", "sasl.mechanism"), "GSSAPI", "kafka.sasl.mechanism GSSAPI is not supported by the writer"),
    (("kafka", "ssl.certificate.pem"), "x", "kafka.ssl.key.location is missing"),
    (("spark", "spark.driver.memory"), "tiny", "spark.driver.memory: Spark cannot start with a Java heap"),
    (("spark", "spark.task.maxFailures"), 7, "spark.task.maxFailures is set by Tidemark"),
    (("services", "coordinator"), "0.0.0.0:7411", "0.0.0.0:7411 can be reached"),
    (("services", "metrics"), "0.0.0.0:7412", "0.0.0.0:7412 can be reached"),
    (("services", "http"), "0.0.0.0:7414", "0.0.0.0:7414 can be reached"),
    (("state", "memory"), 512, "state.memory is 512"),
)
# Told only beside the one above: `price` is a column, of a type that neither may have.
ALSO = ("record key field price has type double", "partition field price has type double")
# These are wrong only beside another of the list.
_TOGETHER = ("framing", "delete_field")


def faulty(folder: Path, faults: Sequence[tuple[tuple[str, ...], Any, str]]) -> Path:
    file = write_config(folder)
    fields = [*SCHEMA["fields"], {"name": "price", "type": "double"}]
    (folder / "orders.avsc").write_text(json.dumps({**SCHEMA, "fields": fields}))
    document = yaml.safe_load(file.read_text())
    for path, value, _ in faults:
        section = document
        for part in path[:-1]:
            section = section.setdefault(part, {})
        section[path[-1]] = value
    file.write_text(yaml.safe_dump(document))
    return file


def said_of(file: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["config", "check", "-c", str(file)]) == 2
    return capsys.readouterr().err


# Whether an address is protected rests on `security`: it is not known while that is wrong.
@pytest.mark.parametrize("left_out", ["security", "services"])
def test_everything_that_is_wrong_is_told_in_one_round(
    left_out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = [each for each in FAULTS if each[0][0] != left_out]
    said = said_of(faulty(tmp_path, faults), capsys)
    missing = [text for text in [*(told for _, _, told in faults), *ALSO] if text not in said]
    assert not missing, said
    # And nothing that follows from another mistake alone.
    assert f" {len(faults) + len(ALSO)} things are wrong" in said


@pytest.mark.parametrize("fault", [each for each in FAULTS if each[0][-1] not in _TOGETHER], ids=str)
def test_one_mistake_alone_is_told(
    fault: tuple[tuple[str, ...], Any, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fault[2] in said_of(faulty(tmp_path, [fault]), capsys)


def test_a_value_that_is_not_known_is_not_called_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = [
        (("kafka", "bootstrap.servers"), "${NOT_SET_ANYWHERE}", ""),
        (("spark", "spark.master"), "k8s://api:443", ""),
        (("spark", "spark.kubernetes.container.image"), "${NOT_SET_ANYWHERE}", ""),
        (("input", "schema_registry"), {"url": "${NOT_SET_ANYWHERE}"}, ""),
        (("table", "ordering"), "${NOT_SET_ANYWHERE}", ""),
    ]
    said = said_of(faulty(tmp_path, faults), capsys)
    assert said.count("environment variable NOT_SET_ANYWHERE is not set") == 4, said
    assert "4 things are wrong" in said
