"""What our clients need, services included: the authorities to trust, a certificate and a token.

The token is the first of these: TIDEMARK_TOKEN_FILE (`--token-file`), TIDEMARK_TOKEN, `security.token`, the
token that `tidemark run` on this machine makes for its own processes. It is read again when its file changes.
It is sent unencrypted only on loopback, or if `services.allow_remote: true` allows it.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from tidemark.config.model import Address, TableConfigFile
from tidemark.config.security_model import SecretSource, TlsConfig
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.security.certificates import load_authority, load_own
from tidemark.stream_runtime.security.errors import SecurityConfigError
from tidemark.stream_runtime.security.listening import is_loopback
from tidemark.stream_runtime.security.local_token import TOKEN_FILE_VARIABLE, local_token_path
from tidemark.stream_runtime.security.secret_file import Reloaded
from tidemark.stream_runtime.security.tokens import checked_token, read_source

TOKEN_VARIABLE: Final = "TIDEMARK_TOKEN"
_log = logging.getLogger("tidemark.security")


@dataclass(frozen=True)
class ClientSecurity:
    """What a client shows and trusts.

    `credentials` None: unencrypted; else it returns the same object until its files change. `server_name`:
    the name that the server's certificate must have, in place of the address. `token` returns the newest
    token or None. `clear_text_allowed`: the token may be sent unencrypted beyond loopback.
    """

    credentials: Callable[[], grpc.ChannelCredentials] | None = None
    server_name: str | None = None
    token: Callable[[], str | None] = lambda: None
    clear_text_allowed: bool = False

    def token_for(self, address: Address) -> str | None:
        """The token for calls to the address. Raises SecurityConfigError if it would be sent unencrypted and
        may not.
        """
        token = self.token()
        clear = self.credentials is None and not self.clear_text_allowed
        if token is not None and clear and not is_loopback(address.host):
            raise SecurityConfigError(
                f"the token is not sent to {address} in the clear: configure security.tls, or say "
                "services.allow_remote: true in a network that you trust"
            )
        return token


IN_THE_CLEAR: Final = ClientSecurity()


def client_security(
    config: TableConfigFile, clock: Clock | None = None, env: Mapping[str, str] | None = None
) -> ClientSecurity:
    """The client's side of the configuration and the environment. Raises SecurityConfigError."""
    tls = config.security.tls
    return ClientSecurity(
        credentials=None if tls is None else _credentials(tls, clock or SystemClock()),
        server_name=None if tls is None else tls.server_name,
        token=_token(config, os.environ if env is None else env),
        clear_text_allowed=config.services.allow_remote,
    )


def https_context(config: TableConfigFile) -> ssl.SSLContext | None:
    """The TLS context by which `tidemark run` asks its own services over HTTPS; None if no TLS is configured.

    The authority is checked but the name is not, because the services are asked at their listen addresses
    (for instance 0.0.0.0), which no certificate must name. Raises OSError for files that cannot be read.
    """
    tls = config.security.tls
    if tls is None:
        return None
    context = ssl.create_default_context(cafile=None if tls.ca is None else str(tls.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    if tls.certificate is not None and tls.key is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    return context


def _credentials(tls: TlsConfig, clock: Clock) -> Callable[[], grpc.ChannelCredentials]:
    def load() -> grpc.ChannelCredentials:
        own = load_own(tls, clock)
        authority = load_authority(tls, clock)
        if own is None:
            return grpc.ssl_channel_credentials(authority)
        return grpc.ssl_channel_credentials(authority, own.key, own.chain)

    paths = tuple(path for path in (tls.certificate, tls.key, tls.ca) if path is not None)
    return Reloaded(paths, load, _log.error).current


def _token(config: TableConfigFile, env: Mapping[str, str]) -> Callable[[], str | None]:
    source, setting = config.security.token, "security.token"
    if env.get(TOKEN_FILE_VARIABLE):
        source, setting = SecretSource(file=Path(env[TOKEN_FILE_VARIABLE]).absolute()), TOKEN_FILE_VARIABLE
    elif env.get(TOKEN_VARIABLE):
        source, setting = SecretSource(env=TOKEN_VARIABLE), TOKEN_VARIABLE
    if source is None:
        return _local_token(config)

    def load() -> str:
        return checked_token(read_source(source, setting, env), f"{setting}: {source}")

    if source.file is None:
        token = load()
        return lambda: token
    return Reloaded((source.file,), load, _log.error).current


def _local_token(config: TableConfigFile) -> Callable[[], str | None]:
    if not config.security.knows_callers:
        return lambda: None
    path = local_token_path(config.state.path)
    source = SecretSource(file=path)

    def load() -> str | None:
        return checked_token(read_source(source, "security.token"), str(path)) if path.exists() else None

    return Reloaded((path,), load, _log.error).current
