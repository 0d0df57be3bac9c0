"""The format of a service's log (`telemetry.log_format`)."""

from __future__ import annotations

from enum import Enum


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"
