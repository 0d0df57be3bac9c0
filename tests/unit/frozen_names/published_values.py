"""Values that programs compare with: reasons of errors and dead letters, kinds of warnings, states."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final, get_args

import tidemark.commit_coordinator
import tidemark.config
import tidemark.hudi_format
import tidemark.ledger_client
import tidemark.stream_runtime
from tidemark.commit_coordinator.domain.actions import NextAction, published_name
from tidemark.epoch_protocol.stopped_lanes import StopReason
from tidemark.errors import TidemarkError
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.rpc.errors import reason_of
from tidemark.table_status.warnings import WarningKind
from tidemark.table_verification.findings import Kind

_ANSWERED_FROM: Final = (
    tidemark.commit_coordinator,
    tidemark.config,
    tidemark.hudi_format,
    tidemark.ledger_client,
    tidemark.stream_runtime,
)
"""Packages whose errors the coordinator's calls answer with. An error without a reason of its own is told by
the name of its class, so renaming the class would rename it.
"""


def published_values() -> set[str]:
    """`what value`."""
    values = {
        "dead letter": [each.value for each in DeadLetterReason],
        "stopped lane": [each.value for each in StopReason],
        "warning": [each.value for each in WarningKind],
        "difference": [each.value for each in Kind],
        "doing": [published_name(each) for each in get_args(NextAction)],
        "error": [reason_of(each.__new__(each)) for each in _errors()],
    }
    return {f"{what} {value}" for what, found in values.items() for value in found}


def _errors() -> Iterator[type[TidemarkError]]:
    names = tuple(package.__name__ for package in _ANSWERED_FROM)
    for package in _ANSWERED_FROM:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for error in _below(TidemarkError):
        if error.__module__.startswith(names) and not error.__name__.startswith("_"):
            yield error


def _below(error: Any) -> Iterator[Any]:
    for each in error.__subclasses__():
        yield each
        yield from _below(each)
