"""Identifies callers by token or certificate, and decides what they may do. One object for all ports of a
process.

- With `security.tokens` the list there decides.
- With mutual TLS and no tokens, every caller with a certificate of the authority may do everything.
- With neither, everybody who reaches the port may do everything.

Refusals are counted. They are logged at most once in `LOG_EVERY_S`, with their number, so that strangers
cannot fill the log. No text contains a token.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.security.errors import Denial, DeniedError
from tidemark.stream_runtime.security.refused_calls import RefusedCalls
from tidemark.stream_runtime.security.roles import ALL_ROLES, METHOD_ROLES, Caller, Role, is_allowed
from tidemark.stream_runtime.security.tokens import AccessList

LOG_EVERY_S: Final = 10.0
ANYBODY: Final = Caller("anybody", ALL_ROLES)
_log = logging.getLogger("tidemark.security")


class AccessControl:
    """Thread-safe. `access_list` returns the newest list; without one everybody may do everything.
    `any_certificate`: a caller with a certificate of the authority need not be in the list.
    """

    def __init__(
        self,
        access_list: Callable[[], AccessList] | None,
        clock: Clock,
        *,
        any_certificate: bool,
        refused: RefusedCalls | None = None,
    ) -> None:
        self._access_list = access_list
        self._any_certificate = any_certificate
        self._clock = clock
        self._lock = threading.Lock()
        self.refused = refused or RefusedCalls()
        self._unlogged = 0
        self._logged_s: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether everybody who reaches the port may do everything."""
        return self._access_list is None

    def caller(self, token: str | None, certificate_names: Collection[str] = ()) -> Caller:
        """The caller: by the token if the call has one, else by the certificate. Raises DeniedError."""
        if self._access_list is None:
            return ANYBODY
        known = self._access_list()
        if token is not None:
            holder = known.holder(token)
            if holder is None:
                raise DeniedError(
                    Denial.BAD_TOKEN, "the token is not known here: was it replaced in security.tokens?"
                )
            return holder
        if self._any_certificate and certificate_names:
            return Caller(next(iter(certificate_names)), ALL_ROLES)
        owner = known.owner(certificate_names)
        if owner is None:
            raise DeniedError(
                Denial.NO_TOKEN,
                "a token is needed: set TIDEMARK_TOKEN or TIDEMARK_TOKEN_FILE, or security.token",
            )
        return owner

    def check_method(self, method: str, caller: Caller) -> None:
        """Raises DeniedError if no role of the caller allows the gRPC method."""
        if is_allowed(method, caller.roles):
            return
        wanted = METHOD_ROLES.get(method)
        role = "no role allows it" if wanted is None else f"it needs the role {wanted.value}"
        raise DeniedError(Denial.ROLE, f"{caller.name} may not call {method}: {role}")

    def note(self, error: DeniedError, peer: str, what: str) -> None:
        """Counts that `what` was refused to `peer`, and logs it unless a refusal was logged just before."""
        self.refused.add(error.denial.value)
        with self._lock:
            self._unlogged += 1
            now_s = self._clock.monotonic_s()
            if self._logged_s is not None and now_s - self._logged_s < LOG_EVERY_S:
                return
            count, self._unlogged, self._logged_s = self._unlogged, 0, now_s
        _log.warning("refused %s to %s: %s (%d refused since the last such line)", what, peer, error, count)


def bearer_token(headers: Mapping[str, str]) -> str | None:
    """The token in `authorization: Bearer …`; None without one. `headers` have lower case names."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None


def may(caller: Caller, role: Role) -> bool:
    """Whether the caller has the role."""
    return role in caller.roles
