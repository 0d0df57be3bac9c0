"""The server's side of security: certificates, which may be replaced while the service runs, and access.

TLS is version 1.2 or newer. gRPC offers nothing older; the HTTP side is configured so.
"""

from __future__ import annotations

import logging
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import grpc

from tidemark.config.model import TableConfigFile
from tidemark.config.security_model import ClientAuth, SecurityConfig, TlsConfig
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.security.access import AccessControl
from tidemark.stream_runtime.security.certificates import OwnCertificate, load_authority, load_own
from tidemark.stream_runtime.security.errors import SecurityConfigError
from tidemark.stream_runtime.security.local_token import local_token_path, with_local_token
from tidemark.stream_runtime.security.refused_calls import RefusedCalls
from tidemark.stream_runtime.security.secret_file import Reloaded
from tidemark.stream_runtime.security.tokens import AccessList, parse_access_list, read_source

_TOKENS: Final = "security.tokens"
_log = logging.getLogger("tidemark.security")


class ServerTls:
    """A service's certificate and the authority of its callers, read again when their files change."""

    def __init__(self, tls: TlsConfig, clock: Clock) -> None:
        """Raises SecurityConfigError for files that no server can use."""
        if tls.certificate is None or tls.key is None:
            raise SecurityConfigError(
                "security.tls.certificate: a service needs it (with security.tls.key), because its callers "
                "expect TLS"
            )
        self.requires_certificates = tls.client_auth is ClientAuth.REQUIRE
        paths = tuple(path for path in (tls.certificate, tls.key, tls.ca) if path is not None)

        def load() -> tuple[OwnCertificate, bytes | None]:
            own = load_own(tls, clock)
            assert own is not None
            return own, load_authority(tls, clock)

        self._files = Reloaded(paths, load, _log.error)

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Credentials that use the newest certificate that could be loaded, at each handshake."""
        offered = self._files.current()

        def newest() -> Any:
            nonlocal offered
            now = self._files.current()
            if now is offered:
                return None
            offered = now
            return _grpc_configuration(*now)

        return grpc.dynamic_ssl_server_credentials(
            _grpc_configuration(*offered), newest, require_client_authentication=self.requires_certificates
        )

    def https_context(self) -> Callable[[], ssl.SSLContext]:
        """A function that returns the context for the next connection: the same one until a file changes."""
        offered = self._files.current()
        context = self._https(*offered)

        def newest() -> ssl.SSLContext:
            nonlocal offered, context
            now = self._files.current()
            if now is not offered:
                offered, context = now, self._https(*now)
            return context

        return newest

    def _https(self, own: OwnCertificate, authority: bytes | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # The checked contents must be used, and the files may have changed since. The ssl module takes only a
        # file, so they go into a temporary one, which only we can read.
        with tempfile.TemporaryDirectory(prefix="tidemark-tls-") as folder:
            pair = Path(folder, "pair.pem")
            pair.touch(mode=0o600)
            pair.write_bytes(own.key.rstrip() + b"\n" + own.chain)
            context.load_cert_chain(pair)
        if self.requires_certificates:
            assert authority is not None
            context.load_verify_locations(cadata=authority.decode("ascii"))
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class ServerSecurity:
    """The security of a service. `tls` None: unencrypted. All ports of a process share `access`."""

    def __init__(self, tls: ServerTls | None, access: AccessControl, config: SecurityConfig) -> None:
        self.tls = tls
        self.access = access
        self.config = config


def server_security(
    config: TableConfigFile, clock: Clock, refused: RefusedCalls | None = None
) -> ServerSecurity:
    """The security that the configuration asks for. ``refused`` counts the refusals; all ports of a process
    share it. Raises SecurityConfigError for a file that cannot be used.
    """
    section = config.security
    tls = None if section.tls is None else ServerTls(section.tls, clock)
    any_certificate = section.tokens is None
    access = AccessControl(_access_list(config), clock, any_certificate=any_certificate, refused=refused)
    return ServerSecurity(tls, access, section)


def open_security() -> ServerSecurity:
    """The security of a service without a configuration: unencrypted, and open to all who reach the port."""
    return ServerSecurity(None, AccessControl(None, SystemClock(), any_certificate=False), SecurityConfig())


def _access_list(config: TableConfigFile) -> Callable[[], AccessList] | None:
    if not config.security.knows_callers:
        return None
    source, state = config.security.tokens, config.state.path

    def load() -> AccessList:
        text = "" if source is None else read_source(source, _TOKENS)
        return with_local_token(parse_access_list(text, f"{_TOKENS}: {source}"), state)

    named = (None if source is None else source.file, local_token_path(state))
    paths = tuple(path for path in named if path is not None)
    return Reloaded(paths, load, _log.error).current


def _grpc_configuration(own: OwnCertificate, authority: bytes | None) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(own.key, own.chain)], authority)
