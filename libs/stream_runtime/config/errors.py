"""The one error of the configuration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stream_runtime.errors import ErrorKind, StreamRuntimeError


class ConfigError(StreamRuntimeError):
    """A configuration file cannot be used. Names the file, the key's path in it, and what to do."""

    kind = ErrorKind.INVALID

    def __init__(self, file: str, key_path: str, problem: str) -> None:
        self.file = file
        self.key_path = key_path
        self.problem = problem
        super().__init__(f"{file}: {key_path}: {problem}" if key_path else f"{file}: {problem}")


class Problems:
    """What is wrong with one file, gathered: whoever corrects it wants to know all of it at once."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: list[ConfigError] = []

    def note(self, error: ConfigError) -> None:
        """Keeps it."""
        self._found.append(error)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A ConfigError of the block is kept; what comes after the block goes on."""
        try:
            yield
        except ConfigError as error:
            self._found.append(error)

    def raise_if_any(self) -> None:
        """Raises the one ConfigError, or one that names all of them."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            told = "; ".join(
                f"({n}) {f'{each.key_path}: ' if each.key_path else ''}{each.problem}"
                for n, each in enumerate(self._found, 1)
            )
            raise ConfigError(self._file, "", f"{len(self._found)} things are wrong: {told}")
