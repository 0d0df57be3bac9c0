"""The table of roles against the protos: every method has a line, and what has none is refused."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from tidemark.stream_runtime.security.roles import ALL_ROLES, GRANTS, METHOD_ROLES, OPEN, Role, is_allowed

ROOT = Path(__file__).resolve().parents[4]
PROTOS = sorted((ROOT / "proto").rglob("*.proto"))


def methods_of(descriptor: FileDescriptor) -> set[str]:
    return {
        f"/{service.full_name}/{method.name}"
        for service in descriptor.services_by_name.values()
        for method in service.methods
    }


def our_methods() -> set[str]:
    found: set[str] = set()
    for proto in PROTOS:
        module = ".".join(proto.relative_to(ROOT / "proto").with_suffix("").parts)
        found |= methods_of(importlib.import_module(f"{module}_pb2").DESCRIPTOR)
    return found


def test_every_method_of_every_proto_has_its_role():
    ours = our_methods()
    assert len(ours) >= 19
    assert ours - METHOD_ROLES.keys() == set(), "give these a role in stream_runtime/security/roles.py"
    listed = {method for method in METHOD_ROLES if method.startswith("/tidemark.")}
    assert listed - ours == set(), "these are in no proto any more"


def test_reflection_and_health_are_covered():
    assert methods_of(reflection_pb2.DESCRIPTOR) <= METHOD_ROLES.keys()
    assert methods_of(health_pb2.DESCRIPTOR) <= OPEN | METHOD_ROLES.keys()
    assert not OPEN & METHOD_ROLES.keys()


@pytest.mark.parametrize(
    "method", ["/tidemark.admin.v1.Admin/Drop", "/x.Y/Z", "", "/tidemark.admin.v1.Admin/"]
)
def test_method_without_a_line_is_refused_to_everybody(method: str):
    assert not is_allowed(method, ALL_ROLES)


# Written out: a method that moves to another role fails here, whatever the table of roles says.
LOOKING = {
    "Serves",
    "Status",
    "Lookup",
    "LookupStream",
    "LookupValue",
    "ListEpochs",
    "ShowEpoch",
    "ListDeadLetters",
    "ShowDeadLetter",
    "LastVerification",
    "DescribeTable",
    "ListServices",
}
CHANGING = {
    "WarmIndex",
    "Flush",
    "RetryEpoch",
    "AcceptTopic",
    "Pause",
    "Resume",
    "ReplayDeadLetters",
    "SkipInput",
    "Verify",
    "RunService",
    "PauseServices",
    "ResumeServices",
}
ADMIN = "/tidemark.admin.v1.Admin/"


def test_the_lists_here_have_every_method_of_the_admin_service():
    ours = {method.removeprefix(ADMIN) for method in our_methods() if method.startswith(ADMIN)}
    assert ours == LOOKING | CHANGING
    assert not LOOKING & CHANGING


@pytest.mark.parametrize("name", sorted(LOOKING | CHANGING))
def test_an_admin_method_asks_for_the_role_that_is_written_here(name: str):
    needed = Role.READ if name in LOOKING else Role.OPERATE
    assert [role for role in Role if is_allowed(f"{ADMIN}{name}", frozenset({role}))] == [needed]
    operator, reader, service = (GRANTS[role] for role in (Role.OPERATE, Role.READ, Role.SERVICE))
    assert is_allowed(f"{ADMIN}{name}", operator)
    assert is_allowed(f"{ADMIN}{name}", reader) == (name in LOOKING)
    assert not is_allowed(f"{ADMIN}{name}", service)
    assert not is_allowed(f"{ADMIN}{name}", frozenset())


def test_roles_reach_what_they_should():
    assert is_allowed("/tidemark.admin.v1.Admin/Status", frozenset({Role.READ}))
    assert not is_allowed("/tidemark.admin.v1.Admin/Pause", frozenset({Role.READ}))
    assert not is_allowed("/tidemark.commit.v1.CommitCoordinator/Begin", frozenset({Role.READ, Role.OPERATE}))
    assert not is_allowed("/tidemark.admin.v1.Admin/Pause", frozenset({Role.SERVICE}))
    assert is_allowed("/grpc.health.v1.Health/Check", frozenset())
    assert not is_allowed("/grpc.health.v1.Health/Watch", frozenset()), "a stranger would hold a stream"


def test_services_change_nothing_that_only_operators_may():
    for method, role in METHOD_ROLES.items():
        if "CommitCoordinator" in method or "IndexAssigner" in method:
            assert role is Role.SERVICE, method
