"""Every place at which a coordinator can be cut: failpoints, and storage calls that change something."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from testing.faulty_storage import WRITING
from tidemark.hudi_format.storage.base import Storage

_WRITING = WRITING - {"sync_dir", "write_in_pieces"}


class Points:
    """Counts the places that one coordinator passes; ``act`` is called once, before the nth from `arm`."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self._left = 0
        self._act: Callable[[], None] | None = None

    @property
    def is_armed(self) -> bool:
        """Whether the place has not come yet."""
        return self._act is not None

    def arm(self, nth: int, act: Callable[[], None]) -> None:
        """Lets ``act`` happen before the nth place from now."""
        self._left, self._act = nth, act

    def passing(self, place: str) -> None:
        """The coordinator is there."""
        self.passed.append(place)
        self._left -= 1
        if self._left == 0 and self._act is not None:
            act, self._act = self._act, None
            act()

    def over(self, storage: Storage) -> Storage:
        """The storage, telling of each call that changes something."""
        return cast(Storage, _Telling(storage, self))


class _Telling:
    def __init__(self, inner: Storage, points: Points) -> None:
        self._inner = inner
        self._points = points

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if name not in _WRITING:
            return call

        def told(*args: Any, **kwargs: Any) -> Any:
            self._points.passing(f"{name} {args[0]}")
            return call(*args, **kwargs)

        def each(links: Sequence[tuple[str, str]]) -> list[str]:
            return [taken for link in links for taken in told([link])]

        return each if name == "link_all" else told
