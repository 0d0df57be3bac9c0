"""The comparison of a long listing with what is there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.metadata_table.partitions.files import ListedFiles
from tidemark.hudi_format.timeline import Timeline
from tidemark.table_verification import committed_files
from tidemark.table_verification.committed_files import CommittedFiles, check_listing
from tidemark.table_verification.findings import Findings, Kind

FILES = 300


def test_a_record_that_lost_half_of_its_files_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {f"{number:036d}-0_1-0-1_20260101000000000.parquet": 7 for number in range(FILES)}

    class Listed(ListedFiles):
        def files(self, partition_path: str) -> Mapping[str, int]:
            return dict(list(there.items())[::2])

        def is_listed(self, partition_path: str) -> bool:
            return True

    parsed: list[str] = []

    class Counting:
        @staticmethod
        def parse(name: str) -> Any:
            parsed.append(name)
            return BaseFileName.parse(name)

    monkeypatch.setattr(committed_files, "BaseFileName", Counting)
    findings = Findings()
    check_listing(
        CommittedFiles({"d": there}, 0), Listed(), Timeline(()), lambda _: [], findings, frozenset[str]
    )
    assert findings.counts[Kind.FILE_NOT_LISTED] == FILES // 2
    assert len(parsed) <= FILES
