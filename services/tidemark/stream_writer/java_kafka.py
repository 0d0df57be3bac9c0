"""Translates the section `kafka:`, which has librdkafka's names, into settings of Kafka's Java client.

Spark's Kafka source uses the Java client to read the decisions topic. Only addresses and security are
translated. The other settings tune our own producers and consumers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tidemark.stream_writer.errors import EngineSettingError

# Settings with the same name and values in both clients.
_SAME: Final = (
    "bootstrap.servers",
    "security.protocol",
    "client.rack",
    "ssl.endpoint.identification.algorithm",
)
_LOGIN_MODULES: Final[Mapping[str, str]] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_settings(section: Mapping[str, str]) -> dict[str, str]:
    """The settings of the Java consumer. Raises EngineSettingError for a login or certificate that cannot be
    translated.
    """
    settings = {key: section[key] for key in _SAME if key in section}
    if "security.protocol" in settings:
        settings["security.protocol"] = settings["security.protocol"].upper()
    for key in ("sasl.mechanism", "sasl.mechanisms"):
        if section.get(key):
            settings["sasl.mechanism"] = section[key]
            settings["sasl.jaas.config"] = _login(key, section)
            break
    return {**settings, **_certificates(section)}


def _login(key: str, section: Mapping[str, str]) -> str:
    mechanism = section[key]
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise EngineSettingError(
            f"kafka.{key} {mechanism} is not supported by the writer: use {', '.join(_LOGIN_MODULES)}"
        )
    name, password = (_quoted(section.get(f"sasl.{part}", "")) for part in ("username", "password"))
    return f"{module} required username={name} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _certificates(section: Mapping[str, str]) -> dict[str, str]:
    """Certificates as PEM texts, whether the section has them as files or as texts (`ssl.key.pem` …). As a
    file Java would want certificate and key together.
    """
    settings: dict[str, str] = {}
    if (authority := _pem(section, "ssl.ca")) is not None:
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.certificates"] = authority
    if (certificate := _pem(section, "ssl.certificate")) is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.certificate.chain"] = certificate
        settings["ssl.keystore.key"] = _key(section)
    return settings


def _key(section: Mapping[str, str]) -> str:
    """The private key, decrypted and in PKCS #8. Java 17 can read neither the usual encryption of PEM keys
    nor their older forms.
    """
    # Who has no key to decrypt starts without it.
    from cryptography.hazmat.primitives import serialization

    content, password = _pem(section, "ssl.key"), section.get("ssl.key.password")
    if content is None:
        raise EngineSettingError("kafka.ssl.key.location is missing: the certificate needs its key")
    try:
        key = serialization.load_pem_private_key(content.encode(), password.encode() if password else None)
    except (ValueError, TypeError):
        raise EngineSettingError(
            f"kafka.ssl.key.location: {section.get('ssl.key.location', 'ssl.key.pem')} has no private key "
            f"that can be read {'with' if password else 'without'} kafka.ssl.key.password"
        ) from None
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return plain.decode("ascii")


def _pem(section: Mapping[str, str], name: str) -> str | None:
    inline, key = section.get(f"{name}.pem"), f"{name}.location"
    if inline is not None or key not in section:
        return inline
    try:
        return Path(section[key]).read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise EngineSettingError(
            f"kafka.{key}: {section[key]} is not a readable PEM file ({error})"
        ) from None
