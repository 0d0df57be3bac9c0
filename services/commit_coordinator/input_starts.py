"""Where lanes that never counted begin with `input.start: latest`: resolved once, kept with the table.

Resolved anew at every claim, the end would pass what arrived since the last one: those records would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from commit_coordinator.staging import ROOT
from commit_coordinator.status import input_ends
from hudi_format.errors import AlreadyExistsError, FileMissingError
from hudi_format.storage.base import Storage, join_path
from stream_runtime.config import InputStart
from stream_runtime.kafka.ports import Admin

INPUT_STARTS: Final = join_path(ROOT, "input-starts.json")


def record_input_starts(
    start: InputStart, storage: Storage, admin: Admin, lanes: Sequence[str]
) -> dict[str, int]:
    """First position per input lane (``topic:partition``); nothing is recorded with `input.start: earliest`.

    Lanes that the record lacks (the ledger begins, or the topic is new to the configuration) begin at the
    end of now.
    """
    if start is not InputStart.LATEST:
        return {}
    while True:
        recorded = _read(storage)
        known = recorded or {}
        missing = [lane for lane in lanes if lane not in known]
        if not missing:
            return known
        merged = {**known, **input_ends(admin, missing)}
        content = json.dumps(merged, sort_keys=True, indent=2).encode()
        if recorded is not None:
            storage.replace(INPUT_STARTS, content)
            return merged
        try:
            storage.create(INPUT_STARTS, content)
            return merged
        except AlreadyExistsError:
            # Another coordinator came first: its positions hold.
            continue


def _read(storage: Storage) -> dict[str, int] | None:
    try:
        recorded: dict[str, int] = json.loads(storage.read(INPUT_STARTS))
    except FileMissingError:
        return None
    return recorded
