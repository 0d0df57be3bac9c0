"""How long calls of the admin service may take, and how many may run at the same time.

They share the server's threads with shufflers, assigners and the writer. A lease that cannot be renewed in
time ends, so admin calls must never take all threads.
"""

from __future__ import annotations

from typing import Final

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.stream_runtime.rpc.admission import CallGroup

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Admin"]
SERVICE_NAME: Final[str] = _SERVICE.full_name
FLUSH_S: Final = 24 * 3_600.0
DEAD_LETTERS_S: Final = 150.0
SKIP_S: Final = 180.0
RUN_SERVICE_S: Final = 24 * 3_600.0
LOOKUP_STREAM_S: Final = 24 * 3_600.0
_VERIFY_MARGIN_S: Final = 60.0
_DEAD_LETTERS: Final = ("ListDeadLetters", "ShowDeadLetter", "ReplayDeadLetters")


def path(method: str) -> str:
    """The full path of one of the service's methods."""
    return f"/{SERVICE_NAME}/{_SERVICE.methods_by_name[method].name}"


def longest_s(verify_timeout_s: float) -> dict[str, float]:
    """Method -> limit in seconds, for methods with a limit of their own.

    The limit of `Verify` is twice `verify.timeout`, because a call may have to wait for a running
    verification.
    """
    return {
        path("Flush"): FLUSH_S,
        path("SkipInput"): SKIP_S,
        path("RunService"): RUN_SERVICE_S,
        path("LookupStream"): LOOKUP_STREAM_S,
        path("Verify"): 2 * verify_timeout_s + _VERIFY_MARGIN_S,
        **{path(method): DEAD_LETTERS_S for method in _DEAD_LETTERS},
    }


CALL_GROUPS: Final = (
    CallGroup("calls of the admin service", frozenset(map(path, _SERVICE.methods_by_name)), 10),
    CallGroup("calls of Flush and RetryEpoch", frozenset({path("Flush"), path("RetryEpoch")}), 4),
    CallGroup("calls of SkipInput", frozenset({path("SkipInput")}), 2),
    CallGroup("calls of RunService", frozenset({path("RunService")}), 2),
    CallGroup("calls of LookupStream", frozenset({path("LookupStream")}), 4),
    CallGroup("calls of LookupValue", frozenset({path("LookupValue")}), 2),
    CallGroup("calls of Verify", frozenset({path("Verify")}), 2),
    CallGroup("calls about dead letters", frozenset(map(path, _DEAD_LETTERS)), 2),
)
