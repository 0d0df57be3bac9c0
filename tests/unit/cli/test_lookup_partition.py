"""`tidemark lookup --partition`: the keys of a table with a partitioned record index."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.table_files import write_config
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.cli.main import main
from tidemark.config import load_config
from tidemark.console.admin_client import AdminClient


def test_lookup_names_the_partition_of_its_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def lookup(keys: list[str], partition: str | None) -> list[dict[str, Any]]:
        asked.append((keys, partition))
        place = {"partition_path": partition, "file_id": "f", "shard": None, "ordering": None}
        return [{"key": key, "tier": "run", "ordering_exact": None, **place} for key in keys]

    client = SimpleNamespace(lookup=lookup)
    monkeypatch.setattr("tidemark.console.admin_client.connect", lambda config: nullcontext(client))
    assert main(["lookup", "k1", "-c", "x.yaml", "--partition", "us/ca"]) == 0
    assert asked == [(["k1"], "us/ca")]
    # The number of a partition's shards belongs to no question, so there is no shard to show.
    assert capsys.readouterr().out.splitlines()[1].split() == ["k1", "run", "us/ca", "f", "-", "-"]
    assert main(["lookup", "k1", "-c", "x.yaml", "--partition", "us/ca", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["found"][0]["shard"] is None
    assert main(["lookup", "--where", "a=b", "-c", "x.yaml", "--partition", "eu"]) == 2
    assert "--partition is for KEY and --file" in capsys.readouterr().err


def test_a_client_tells_no_shard_of_keys_of_a_partition(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def answer(request: pb.LookupRequest, **_: object) -> pb.LookupResponse:
        return pb.LookupResponse(found=[pb.LookupResponse.Found(key=key, shard=0) for key in request.keys])

    with AdminClient(load_config(write_config(tmp_path), {})) as client:
        monkeypatch.setattr(client, "_stub", SimpleNamespace(Lookup=answer))
        assert client.lookup(["k1"], "eu")[0]["shard"] is None
        assert client.lookup(["k1"])[0]["shard"] == 0
