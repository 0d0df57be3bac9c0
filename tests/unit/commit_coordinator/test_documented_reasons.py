"""Programs decide by the reasons of refusals: docs/admin-api.md has each one that the coordinator gives."""

from __future__ import annotations

import re
from pathlib import Path

_REPOSITORY = Path(__file__).parents[3]
_REASON = re.compile(r'^    error_reason = "([A-Z_]+)"$', re.MULTILINE)


def test_every_reason_is_documented() -> None:
    reasons = {
        reason
        for file in (_REPOSITORY / "services" / "tidemark" / "commit_coordinator").rglob("*.py")
        for reason in _REASON.findall(file.read_text())
    }
    assert {"INPUT_STOPPED", "TOPIC_NOT_ACCEPTED", "WRONG_TABLE"} <= reasons
    text = (_REPOSITORY / "docs" / "admin-api.md").read_text()
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in text] == []
