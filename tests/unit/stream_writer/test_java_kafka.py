"""librdkafka's security settings in the Java client's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import Authority
from tidemark.stream_writer.errors import EngineSettingError
from tidemark.stream_writer.java_kafka import java_settings

SERVERS = {"bootstrap.servers": "a:1,b:2"}


def test_plain_cluster_needs_its_address_only() -> None:
    assert java_settings({**SERVERS, "linger.ms": "5", "compression.type": "zstd"}) == SERVERS


@pytest.mark.parametrize("key", ["sasl.mechanism", "sasl.mechanisms"])
def test_password_with_quotes_stays_one_value(key: str) -> None:
    section = {**SERVERS, "security.protocol": "sasl_ssl", key: "PLAIN", "sasl.username": "u"}
    settings = java_settings({**section, "sasl.password": 'p"; x="\\'})
    assert settings["security.protocol"] == "SASL_SSL"
    assert settings["sasl.mechanism"] == "PLAIN"
    assert settings["sasl.jaas.config"] == (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        r'username="u" password="p\"; x=\"\\";'
    )


def test_unknown_mechanism_is_refused_with_those_that_work() -> None:
    with pytest.raises(EngineSettingError, match="GSSAPI.*SCRAM-SHA-512"):
        java_settings({**SERVERS, "sasl.mechanism": "GSSAPI"})


def test_pem_files_travel_as_text(tmp_path: Path) -> None:
    for name in ("ca", "cert"):
        (tmp_path / name).write_text(f"-----{name}-----")
    key = Authority(tmp_path / "pki").issue("client").key
    settings = java_settings(
        {
            **SERVERS,
            "ssl.ca.location": str(tmp_path / "ca"),
            "ssl.certificate.location": str(tmp_path / "cert"),
            "ssl.key.location": str(key),
        }
    )
    assert settings["ssl.truststore.certificates"] == "-----ca-----"
    assert settings["ssl.keystore.certificate.chain"] == "-----cert-----"
    assert settings["ssl.keystore.key"] == key.read_text()
    assert {settings["ssl.truststore.type"], settings["ssl.keystore.type"]} == {"PEM"}


def test_certificate_without_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cert").write_text("x")
    with pytest.raises(EngineSettingError, match="ssl.key.location"):
        java_settings({**SERVERS, "ssl.certificate.location": str(tmp_path / "cert")})


def test_encrypted_key_travels_decrypted_and_its_password_not_at_all(tmp_path: Path) -> None:
    """Java 17 knows neither the usual encryption of PEM keys nor their older forms."""
    pair = Authority(tmp_path).issue("client", password="hush")
    section = {**SERVERS, "ssl.certificate.pem": "-----cert-----", "ssl.key.pem": pair.key.read_text()}
    settings = java_settings({**section, "ssl.key.password": "hush"})
    assert settings["ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert "ssl.key.password" not in settings
    for password in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(EngineSettingError, match="has no private key that can be read") as failed:
            java_settings({**section, **password})
        assert "wrong" not in str(failed.value)
