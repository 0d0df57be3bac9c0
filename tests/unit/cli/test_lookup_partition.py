"""`tidemark lookup --partition`: the keys of a table with a partitioned record index."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.cli.main import main


def test_lookup_names_the_partition_of_its_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def lookup(keys: list[str], partition: str | None) -> list[dict[str, Any]]:
        asked.append((keys, partition))
        place = {"partition_path": partition, "file_id": "f", "shard": 0, "ordering": None}
        return [{"key": key, "tier": "run", "ordering_exact": None, **place} for key in keys]

    client = SimpleNamespace(lookup=lookup)
    monkeypatch.setattr("tidemark.console.admin_client.connect", lambda config: nullcontext(client))
    assert main(["lookup", "k1", "-c", "x.yaml", "--partition", "us/ca"]) == 0
    assert asked == [(["k1"], "us/ca")]
    # The number of a partition's shards belongs to no question, so there is no shard to show.
    assert capsys.readouterr().out.splitlines()[1].split() == ["k1", "run", "us/ca", "f", "-", "-"]
    assert main(["lookup", "--where", "a=b", "-c", "x.yaml", "--partition", "eu"]) == 2
    assert "--partition is for KEY and --file" in capsys.readouterr().err
