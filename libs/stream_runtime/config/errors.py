"""The one error of the configuration."""

from __future__ import annotations

from stream_runtime.errors import ErrorKind, StreamRuntimeError


class ConfigError(StreamRuntimeError):
    """A configuration file cannot be used. Names the file, the key's path in it, and what to do."""

    kind = ErrorKind.INVALID

    def __init__(self, file: str, key_path: str, problem: str) -> None:
        self.file = file
        self.key_path = key_path
        self.problem = problem
        super().__init__(f"{file}: {key_path}: {problem}" if key_path else f"{file}: {problem}")
