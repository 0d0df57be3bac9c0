"""Decides where a service may listen: on loopback always; elsewhere if calls are encrypted and callers known,
or if the configuration says `services.allow_remote: true`.
"""

from __future__ import annotations

import ipaddress
import logging
import socket

from tidemark.config.model import Address
from tidemark.config.security_model import SecurityConfig
from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError

_log = logging.getLogger("tidemark.security")


class ListenError(StreamRuntimeError):
    """The server may not, or cannot, listen at its address."""

    kind = ErrorKind.INVALID


class AddressTakenError(ListenError):
    """Another process has the port, or the host is not this machine. Both may change."""


def check_listen_address(listen: Address, allow_remote: bool, security: SecurityConfig | None = None) -> None:
    """Raises ListenError for an address beyond loopback that is neither protected by `security` nor allowed
    by `allow_remote`. Warns of one that is only allowed. `security` None: no protection is configured.
    """
    if is_loopback(listen.host):
        return
    section = security or SecurityConfig()
    if section.fit_for_networks:
        return
    missing = _missing(section)
    if not allow_remote:
        raise ListenError(
            f"{listen} can be reached from other machines, and {missing}: use 127.0.0.1, configure "
            "security.tls with security.tokens or client_auth: require, or set services.allow_remote: true "
            "in a network that you trust"
        )
    _log.warning(
        "%s can be reached from other machines, and %s (services.allow_remote: true)", listen, missing
    )


def _missing(section: SecurityConfig) -> str:
    clear = "calls and tokens are not encrypted" if section.tokens else "calls are not encrypted"
    anybody = "the services have no authentication: everybody who reaches them may do everything"
    if section.knows_callers:
        return clear
    return anybody if section.tls is not None else f"{clear}, and {anybody}"


def is_loopback(host: str) -> bool:
    """Whether every address of the host is a loopback address; False for an unknown host."""
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(entry[4][0]).split("%")[0]).is_loopback for entry in addresses)
