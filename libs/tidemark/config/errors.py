"""The one error of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tidemark.config.partial import asks_for_unread
from tidemark.errors import ErrorKind, TidemarkError


class ConfigError(TidemarkError):
    """A configuration file cannot be used. Names the file, the key's path in it, and what to do."""

    kind = ErrorKind.INVALID

    def __init__(self, file: str, key_path: str, problem: str) -> None:
        self.file = file
        self.key_path = key_path
        self.problem = problem
        super().__init__(f"{file}: {self.without_file}")

    @property
    def without_file(self) -> str:
        """For a list of what is wrong with one file."""
        return f"{self.key_path}: {self.problem}" if self.key_path else self.problem


class Problems:
    """What is wrong with one file, gathered: whoever corrects it wants to know all of it at once."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._found: list[ConfigError] = []

    def note(self, error: ConfigError) -> None:
        """Keeps it."""
        self._found.append(error)

    @property
    def found(self) -> tuple[ConfigError, ...]:
        return tuple(self._found)

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """A ConfigError of the block is kept; what comes after the block goes on. A block that asks for a key
        that could not be read (`partial`) ends without a word.
        """
        try:
            yield
        except ConfigError as error:
            self._found.append(error)
        except AttributeError as error:
            if not asks_for_unread(error):
                raise

    def raise_if_any(self) -> None:
        """Raises the one ConfigError, or one that names all of them."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise ConfigError(self._file, "", all_of_them([each.without_file for each in self._found]))


def all_of_them(told: Sequence[str]) -> str:
    """Several problems as one text, numbered."""
    return f"{len(told)} things are wrong: {'; '.join(f'({n}) {each}' for n, each in enumerate(told, 1))}"
