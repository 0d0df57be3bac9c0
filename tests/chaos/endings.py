"""Ends several things, each also where the end of another one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def end_all(ends: Iterable[Callable[[], object]]) -> None:
    """Calls all of them, in their order. Raises what the only one that failed raised, and an exception group
    with all where several did. An interrupt goes on when all were called.
    """
    errors: list[BaseException] = []
    for end in ends:
        try:
            end()
        except BaseException as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise BaseExceptionGroup("several parts could not be ended", errors)
