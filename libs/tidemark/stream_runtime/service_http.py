"""The HTTP side of a service process: `/metrics`, `/healthz`, further pages, and who may see them.

The address is that of `--http`, or for the coordinator `services.http`; without one there is no HTTP. If the
port is taken the service ends, because an operator who asked for metrics must learn that there are none.

Who may see what:

- Everybody may ask for `/healthz`. All else takes the role `read`.
- A token comes as `Authorization: Bearer TOKEN`, or as the password of HTTP Basic, which browsers ask their
  user for; the user name does not matter.
- Without tokens and certificates, a server on loopback refuses requests whose `Host` is not a loopback name.
  Such a request comes from a web site whose DNS name leads to this machine (DNS rebinding), and that site's
  scripts could read the answers.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tidemark.config.model import Address, TableConfigFile
from tidemark.config.security_model import SecurityConfig
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.http_messages import Answer, Request, text_answer
from tidemark.stream_runtime.http_server import (
    QUICK_PATHS,
    Guard,
    HttpServer,
    Route,
    Routes,
    service_routes,
    start_http_server,
)
from tidemark.stream_runtime.metrics import Metrics
from tidemark.stream_runtime.security.access import AccessControl, bearer_token, may
from tidemark.stream_runtime.security.errors import Denial, DeniedError
from tidemark.stream_runtime.security.listening import ListenError, is_loopback
from tidemark.stream_runtime.security.refused_calls import TOO_MANY, TOO_SLOW
from tidemark.stream_runtime.security.roles import Caller, Role
from tidemark.stream_runtime.security.server import ServerSecurity, server_security

OPEN_PATHS: Final = QUICK_PATHS
_CHALLENGE: Final[Mapping[str, str]] = {"WWW-Authenticate": 'Basic realm="tidemark", charset="UTF-8"'}


def authorise(access: AccessControl, request: Request, role: Role = Role.READ) -> Caller:
    """The caller, by token or certificate. Raises DeniedError if the caller is unknown or lacks the role."""
    caller = access.caller(shown_token(request.headers), request.certificate_names)
    if not may(caller, role):
        raise DeniedError(Denial.ROLE, f"{caller.name} may not see this: it needs the role {role.value}")
    return caller


def access_guard(access: AccessControl, *, loopback: bool) -> Guard:
    """A guard that refuses requests without the role `read`. `loopback`: the server listens on loopback."""

    def guard(request: Request) -> Answer | None:
        if request.path in OPEN_PATHS:
            return None
        try:
            if access.is_open:
                if loopback and not names_loopback(request.headers.get("host", "")):
                    raise DeniedError(
                        Denial.HOST, "this page is for its own machine: open it as localhost or 127.0.0.1"
                    )
            else:
                authorise(access, request)
        except DeniedError as error:
            access.note(error, request.peer, f"GET {request.path}")
            if error.is_unknown:
                return Answer(f"{error}\n".encode(), status=401, headers=_CHALLENGE)
            return text_answer(403, str(error))
        return None

    return guard


def shown_token(headers: Mapping[str, str]) -> str | None:
    """The token in the request's headers (which have lower case names), None without one."""
    if (token := bearer_token(headers)) is not None:
        return token
    scheme, _, content = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        _, _, password = base64.b64decode(content.strip(), validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return password or None


def names_loopback(host: str) -> bool:
    """Whether a Host header names loopback: `localhost`, a name below it, or a loopback address.

    An empty one passes, since browsers always send the header.
    """
    if not host:
        return True
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    name = name.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_log = logging.getLogger("tidemark.http")


def start_guarded_server(
    listen: Address, routes: Routes, config: TableConfigFile, security: ServerSecurity
) -> HttpServer:
    """Serves HTTP as the section `security:` says: with tokens if any are configured, with HTTPS if
    `speaks_https` says so. Raises ListenError.
    """
    tls = security.tls if speaks_https(listen, security.config) else None
    return start_http_server(
        listen,
        routes,
        allow_remote=config.services.allow_remote,
        guard=access_guard(security.access, loopback=is_loopback(listen.host)),
        too_many=lambda: security.access.refused.add(TOO_MANY),
        too_slow=lambda: security.access.refused.add(TOO_SLOW),
        tls=None if tls is None else tls.https_context(),
        security=security.config,
    )


def speaks_https(listen: Address, section: SecurityConfig) -> bool:
    """Whether the port speaks HTTPS: TLS is configured and the address is beyond loopback.

    On loopback HTTPS protects nothing, and browsers warn of a certificate that does not name `localhost`.
    """
    return section.tls is not None and not is_loopback(listen.host)


@contextmanager
def served(
    http: Address | None,
    config: TableConfigFile,
    metrics: Metrics,
    ready: threading.Event,
    pages: Mapping[str, Route] | None = None,
) -> Iterator[None]:
    """Serves at `http` while the block runs; nothing if it is None.

    `/healthz` answers 200 once `ready` is set; `pages` are further routes. Raises ListenError.
    """
    if http is None:
        yield
        return
    routes = {**service_routes(metrics.registry, ready.is_set), **(pages or {})}
    try:
        server = start_guarded_server(
            http, routes, config, server_security(config, SystemClock(), metrics.refused)
        )
    except ListenError as error:
        raise type(error)(f"{error} (--http, services.http)") from None
    _log.info("metrics at %s/metrics", server.url)
    try:
        yield
    finally:
        server.close()
