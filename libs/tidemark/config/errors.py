"""The error of a configuration file, and a list that collects all errors of one file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidemark.config.partial import asks_for_unread
from tidemark.errors import ErrorKind, TidemarkError


class ConfigError(TidemarkError):
    """A configuration file cannot be used. The text names the file, the key's path in it, and what to do."""

    kind = ErrorKind.INVALID

    def __init__(self, file: str, key_path: str, problem: str) -> None:
        self.file = file
        self.key_path = key_path
        self.problem = problem
        super().__init__(f"{file}: {self.without_file}")

    @property
    def without_file(self) -> str:
        """The error without the file's name, for a list of one file's errors."""
        return f"{self.key_path}: {self.problem}" if self.key_path else self.problem


class Problems:
    """Collects all errors of one file, so that somebody who corrects the file sees all of them at once."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: list[ConfigError] = []

    def note(self, error: ConfigError) -> None:
        """Adds an error."""
        self._found.append(error)

    @property
    def found(self) -> tuple[ConfigError, ...]:
        return tuple(self._found)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A context manager that collects a ConfigError of its block; the code behind the block is executed.

        A block that uses a key that could not be read (`partial`) ends there without another error.
        """
        try:
            yield
        except ConfigError as error:
            self._found.append(error)
        except AttributeError as error:
            if not asks_for_unread(error):
                raise

    def raise_if_any(self) -> None:
        """Raises the only ConfigError, or one that lists all of them; does nothing when there is none."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise ConfigError(self._file, "", all_of_them([error.without_file for error in self._found]))


def all_of_them(told: Sequence[str]) -> str:
    """Several problems as one numbered text."""
    return f"{len(told)} things are wrong: {'; '.join(f'({n}) {text}' for n, text in enumerate(told, 1))}"
