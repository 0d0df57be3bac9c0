"""The role that a caller needs for each method of our gRPC services. A method without a role here is refused.

Add a line here for each new method in `proto/`; a unit test checks that no method of our services is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple


class Role(Enum):
    """What a caller may do. A role includes others only as `GRANTS` says."""

    READ = "read"
    """See status, lookups, epochs, dead letters with their records, metrics and the web page."""
    OPERATE = "operate"
    """Also change how the table is served (flush, pause, resume, retry, replay, skip, accept topics), run,
    pause and resume table services, and start verifications.
    """
    SERVICE = "service"
    """Act as one of the table's own processes: take leases, begin and report epochs."""


GRANTS: Final[Mapping[Role, frozenset[Role]]] = MappingProxyType(
    {
        Role.READ: frozenset({Role.READ}),
        Role.OPERATE: frozenset({Role.READ, Role.OPERATE}),
        Role.SERVICE: frozenset({Role.SERVICE}),
    }
)
ALL_ROLES: Final = frozenset(Role)


class Caller(NamedTuple):
    """A caller: its name in the list of tokens (or in its certificate), and its roles."""

    name: str
    roles: frozenset[Role]


# Methods that need no role, because load balancers and probes ask whether a process serves. Health/Watch
# needs one, since it holds a stream for as long as its caller likes.
OPEN: Final = frozenset({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List"})

_ADMIN: Final[Mapping[str, Role]] = {
    "Serves": Role.READ,
    "Status": Role.READ,
    "Lookup": Role.READ,
    "LookupStream": Role.READ,
    "LookupValue": Role.READ,
    "ListEpochs": Role.READ,
    "ShowEpoch": Role.READ,
    "ListDeadLetters": Role.READ,
    "ShowDeadLetter": Role.READ,
    "LastVerification": Role.READ,
    "DescribeTable": Role.READ,
    "ListServices": Role.READ,
    "RunService": Role.OPERATE,
    "PauseServices": Role.OPERATE,
    "ResumeServices": Role.OPERATE,
    "WarmIndex": Role.OPERATE,
    "Flush": Role.OPERATE,
    "RetryEpoch": Role.OPERATE,
    "AcceptTopic": Role.OPERATE,
    "Pause": Role.OPERATE,
    "Resume": Role.OPERATE,
    "ReplayDeadLetters": Role.OPERATE,
    "SkipInput": Role.OPERATE,
    "Verify": Role.OPERATE,
}
_COMMIT: Final[Mapping[str, Role]] = {
    "Join": Role.SERVICE,
    "Renew": Role.SERVICE,
    "Leave": Role.SERVICE,
    "LeaseFileGroups": Role.SERVICE,
    "WantRewind": Role.SERVICE,
    "NextEpoch": Role.SERVICE,
    "Begin": Role.SERVICE,
    "ReportWritten": Role.SERVICE,
    "ReportWrittenInParts": Role.SERVICE,
    "ReportFailed": Role.SERVICE,
    "NextService": Role.SERVICE,
    "BeginService": Role.SERVICE,
    "ReportService": Role.SERVICE,
    "ReportServiceInParts": Role.SERVICE,
}
_ASSIGNER: Final[Mapping[str, Role]] = {
    "Lookup": Role.SERVICE,
    "LookupBatch": Role.SERVICE,
    "Warm": Role.SERVICE,
}
_HEALTH: Final[Mapping[str, Role]] = {"Watch": Role.READ}
_REFLECTION: Final[Mapping[str, Role]] = {"ServerReflectionInfo": Role.READ}

_BY_SERVICE: Final[Mapping[str, Mapping[str, Role]]] = {
    "tidemark.admin.v1.Admin": _ADMIN,
    "tidemark.commit.v1.CommitCoordinator": _COMMIT,
    "tidemark.assigner.v1.IndexAssigner": _ASSIGNER,
    "grpc.health.v1.Health": _HEALTH,
    "grpc.reflection.v1alpha.ServerReflection": _REFLECTION,
    "grpc.reflection.v1.ServerReflection": _REFLECTION,
}
METHOD_ROLES: Final[Mapping[str, Role]] = MappingProxyType(
    {
        f"/{service}/{method}": role
        for service, methods in _BY_SERVICE.items()
        for method, role in methods.items()
    }
)
"""The role by full method name (`/package.Service/Method`)."""


def is_allowed(method: str, roles: frozenset[Role]) -> bool:
    """Whether a caller with these roles may call the method; False for a method that is not in the tables."""
    return method in OPEN or METHOD_ROLES.get(method) in roles
