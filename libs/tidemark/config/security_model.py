"""The `security:` section: who may call the services, and how calls are encrypted.

Files are only named here, and read where they are used: a client's machine does not have a server's key,
and a service reads a file again that is replaced while it runs. Paths are made absolute, but links in them
are kept, because mounted secrets are replaced by changing a link.
"""

# ruff: noqa: RUF009 - `setting` is dataclasses.field with metadata
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tidemark.config import values
from tidemark.config.errors import ConfigError, Problems
from tidemark.config.settings import setting


class ClientAuth(Enum):
    NONE = "none"
    REQUIRE = "require"
    """Mutual TLS: callers need a certificate that `ca` signed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS files, all PEM. `certificate` and `key`: of a service, and of a client if `client_auth` is
    `require`.

    `ca` None: the authorities that the machine trusts. `server_name`: the name in peers' certificates, if
    it is not the address that is dialled.
    """

    certificate: Path | None = setting(values.linked_path, None)
    key: Path | None = setting(values.linked_path, None)
    ca: Path | None = setting(values.linked_path, None)
    client_auth: ClientAuth = setting(values.one_of(ClientAuth), ClientAuth.NONE)
    server_name: str | None = setting(values.text, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretSource:
    """Where a secret text is read from: a file, or an environment variable; exactly one of them."""

    file: Path | None = setting(values.linked_path, None)
    env: str | None = setting(values.variable_name, None)

    def __str__(self) -> str:
        return f"environment variable {self.env}" if self.file is None else str(self.file)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityConfig:
    """`tokens`: the hashes and roles of accepted tokens; None: everybody who reaches the port is accepted.
    `token`: the token that this process sends when it calls another.
    """

    tls: TlsConfig | None = setting(values.section(TlsConfig), None)
    tokens: SecretSource | None = setting(values.section(SecretSource), None)
    token: SecretSource | None = setting(values.section(SecretSource), None)

    @property
    def knows_callers(self) -> bool:
        """Whether unknown callers are refused, by certificate or by token."""
        mutual = self.tls is not None and self.tls.client_auth is ClientAuth.REQUIRE
        return mutual or self.tokens is not None

    @property
    def fit_for_networks(self) -> bool:
        """Whether services may listen on networks: calls are encrypted, and unknown callers refused."""
        return self.tls is not None and self.knows_callers


def check_security(problems: Problems, file: Path, config: SecurityConfig) -> None:
    """Notes settings that do not fit together."""

    def note(key: str, said: str) -> None:
        problems.note(ConfigError(str(file), f"security.{key}", said))

    for name in ("tokens", "token"):
        with problems.gathered():
            source: SecretSource | None = getattr(config, name)
            if source is not None and (source.file is None) == (source.env is None):
                note(name, "names one of both: {file: PATH} or {env: VARIABLE}")
    with problems.gathered():
        if config.tls is not None:
            _check_tls(problems, config.tls, note)


def _check_tls(problems: Problems, tls: TlsConfig, note: Callable[[str, str], None]) -> None:
    with problems.gathered():
        if (tls.certificate is None) != (tls.key is None):
            missing = "key" if tls.key is None else "certificate"
            note(f"tls.{missing}", "is missing: a certificate and its key go together")
    with problems.gathered():
        if tls.client_auth is ClientAuth.REQUIRE and tls.ca is None:
            note(
                "tls.ca",
                "is required with client_auth: require: the certificate authority that signs the callers",
            )
    with problems.gathered():
        if tls.client_auth is ClientAuth.REQUIRE and tls.certificate is None and tls.key is None:
            note(
                "tls.certificate",
                "is required with client_auth: require: every process shows one, with its key",
            )
