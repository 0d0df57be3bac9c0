"""Where the page of a `tidemark run` is: as configured, or at a free port when another table has that one."""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random

from tidemark.config import Address, ServicesConfig
from tidemark.config.security_model import SecurityConfig
from tidemark.stream_runtime.platform.broker_files import free_ports
from tidemark.stream_runtime.service_http import speaks_https


def page_address(services: ServicesConfig, random: Random, say: Callable[[str], None]) -> Address | None:
    """None where `services.web` is off. Two tables on one machine need no settings to have a page each."""
    wanted = services.web
    if wanted is None:
        return None
    if wanted.port and _is_free(services.listening(wanted)):
        return wanted
    found = Address(wanted.host, free_ports(1, random)[0])
    if wanted.port:
        say(f"another process has {wanted} (services.web): the page of this run is at {found}")
    return found


def page_url(page: Address, services: ServicesConfig, security: SecurityConfig) -> str:
    """What to open; where it listens says whether it is encrypted."""
    https = speaks_https(services.listening(page), security)
    return f"{'https' if https else 'http'}://{page}"


def _is_free(at: Address) -> bool:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server listens: a port whose last connections are ending is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((at.host, at.port))
        except OSError:
            return False
    return True
