"""How a service writes its log: `log.format` of the configuration."""

from __future__ import annotations

from enum import Enum


class LogFormat(Enum):
    TEXT = "text"
    JSON = "json"
