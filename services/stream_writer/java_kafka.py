"""The `kafka:` section, which has librdkafka's names, for Spark's source, which has the Java client's.

Only what a reader of one topic needs is translated: addresses and security. Everything else of the section
tunes producers and consumers of ours and means nothing to a source that is a wake-up call.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stream_writer.errors import EngineSettingError

# The same name and values in both clients.
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
    """Settings of the Java consumer. Raises EngineSettingError for a log-in that has no translation."""
    settings = {key: section[key] for key in _SAME if key in section}
    if "security.protocol" in settings:
        settings["security.protocol"] = settings["security.protocol"].upper()
    mechanism = section.get("sasl.mechanism") or section.get("sasl.mechanisms")
    if mechanism is not None:
        settings["sasl.mechanism"] = mechanism
        settings["sasl.jaas.config"] = _login(mechanism, section)
    return {**settings, **_certificates(section)}


def _login(mechanism: str, section: Mapping[str, str]) -> str:
    module = _LOGIN_MODULES.get(mechanism)
    if module is None:
        raise EngineSettingError(
            f"kafka.sasl.mechanism {mechanism} is none that the writer knows: use {', '.join(_LOGIN_MODULES)}"
        )
    name, password = (_quoted(section.get(f"sasl.{key}", "")) for key in ("username", "password"))
    return f"{module} required username={name} password={password};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _certificates(section: Mapping[str, str]) -> dict[str, str]:
    """PEM files are handed over as text: Java would want certificate and key in one file."""
    settings: dict[str, str] = {}
    if "ssl.ca.location" in section:
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.certificates"] = _pem(section, "ssl.ca.location")
    if "ssl.certificate.location" in section:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.certificate.chain"] = _pem(section, "ssl.certificate.location")
        settings["ssl.keystore.key"] = _pem(section, "ssl.key.location")
    if "ssl.key.password" in section:
        settings["ssl.key.password"] = section["ssl.key.password"]
    return settings


def _pem(section: Mapping[str, str], key: str) -> str:
    try:
        return Path(section[key]).read_text("ascii")
    except KeyError:
        raise EngineSettingError(f"kafka.{key} is missing: the certificate needs its key") from None
    except (OSError, UnicodeDecodeError) as error:
        raise EngineSettingError(f"kafka.{key}: {section[key]} is no readable PEM file ({error})") from None
