"""What users' programs, dashboards and log queries name stays: admin API, JSON keys, metrics, log fields."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.unit.frozen_names.admin_api import names_of
from tests.unit.frozen_names.frozen import COMMAND, lost, recorded, unrecorded
from tests.unit.frozen_names.gathered import gathered
from tidemark.admin.v1 import admin_pb2

KINDS = ("admin_api", "json_keys", "metrics", "log_fields", "values")


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    with pytest.MonkeyPatch.context() as patched:
        return gathered(tmp_path_factory.mktemp("names"), patched)


@pytest.mark.parametrize("kind", KINDS)
def test_no_published_name_is_gone(now: dict[str, set[str]], kind: str) -> None:
    assert not (gone := lost(kind, recorded(kind), now[kind])), gone


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_name_is_recorded(now: dict[str, set[str]], kind: str) -> None:
    assert not (new := unrecorded(kind, recorded(kind), now[kind])), new


@pytest.mark.parametrize("kind", KINDS)
def test_each_name_that_is_taken_away_is_found(now: dict[str, set[str]], kind: str) -> None:
    frozen = recorded(kind)
    for name in frozen:
        said = lost(kind, frozen, now[kind] - {name})
        assert f"\n  {name}\n" in said
        assert "give each of these names back" in said
    assert f"that is meant: {COMMAND}" in unrecorded(kind, frozen, now[kind] | {"planted"})


def test_a_field_that_is_removed_renamed_renumbered_or_of_another_type_is_found() -> None:
    frozen = recorded("admin_api")
    for number, change in enumerate(("remove", "rename", "renumber", "retype")):
        described = FileDescriptorProto()
        admin_pb2.DESCRIPTOR.CopyToProto(described)
        [status] = [each for each in described.message_type if each.name == "Status"]
        field = status.field[number]
        line = f"message Status.{field.name} = {field.number}: "
        assert not lost("admin_api", frozen, names_of(described) | _documents(frozen))
        if change == "remove":
            del status.field[number]
        elif change == "rename":
            field.name = "planted"
        elif change == "renumber":
            field.number = 999
        else:
            field.type, field.type_name = field.TYPE_BYTES, ""
        assert f"\n  {line}" in lost("admin_api", frozen, names_of(described) | _documents(frozen))


def test_a_call_that_is_removed_is_found() -> None:
    frozen, described = recorded("admin_api"), FileDescriptorProto()
    admin_pb2.DESCRIPTOR.CopyToProto(described)
    del described.service[0].method[0]
    gone = lost("admin_api", frozen, names_of(described) | _documents(frozen))
    assert "1 published names are gone" in gone
    assert "method tidemark.admin.v1.Admin/Serves(ServesRequest) returns (ServesResponse)" in gone


def _documents(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("document ")}
