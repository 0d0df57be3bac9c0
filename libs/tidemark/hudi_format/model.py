"""Small value types that all parts of the format share: the location of a record, and Hudi's instant times.

An instant time is 17 digits, `yyyyMMddHHmmssSSS`: wall-clock time in the table's timeline time zone
(FORMAT.md, section 3.6; tables made here use UTC). As long as all writers use one zone, instant times sort as
text like the moments that they name, and Hudi itself compares them as strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, NamedTuple, NewType

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.ports import Clock

INSTANT_LENGTH: Final = 17
_NEAR_MS: Final = 10
# The metadata table's bootstrap instants are counters (00000000000000000, ...1, ...2) instead of times:
# METADATA_TABLE.md, section 9.2.
BOOTSTRAP_INSTANT_PREFIX: Final = "00000000000000"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


ShardId = NewType("ShardId", int)
"""Number of a record index file group, 0 up: never a lane, a partition of a topic or a count. Columns and
arrays of shards are plain int32; what is taken out of one to stand alone is made a `ShardId`.
"""


def shard_ids(count: int) -> Iterator[ShardId]:
    """The shards of an index that has `count` of them."""
    return map(ShardId, range(count))


class RecordLocation(NamedTuple):
    """The location of a record key: the partition path ('' in a table without partitions) and the id of the
    file group.
    """

    partition_path: str
    file_id: str


def is_instant_time(text: str) -> bool:
    """Whether `text` is 17 ASCII digits. It need not be a date: the metadata table's bootstrap instants are
    counters.
    """
    return len(text) == INSTANT_LENGTH and text.isascii() and text.isdigit()


def is_bootstrap_instant(instant: str) -> bool:
    """Whether `instant` is one of the metadata table's bootstrap counters, and no time."""
    return instant.startswith(BOOTSTRAP_INSTANT_PREFIX)


def instant_from_ms(ms: int, zone: tzinfo = UTC) -> str:
    """The 17-digit instant time of `ms` (milliseconds since the Unix epoch) in the time zone `zone`."""
    moment = (_EPOCH + timedelta(milliseconds=ms)).astimezone(zone)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}".rjust(INSTANT_LENGTH, "0")


def instant_to_ms(instant: str, zone: tzinfo = UTC) -> int:
    """Milliseconds since the Unix epoch of a 17-digit instant time.

    Raises `HudiFormatError` when the text is no date (a bootstrap counter, or a 14-digit time of a table from
    before Hudi 0.10).
    """
    if not is_instant_time(instant):
        raise HudiFormatError(f"instant time {instant!r} is not 17 digits yyyyMMddHHmmssSSS")
    try:
        date = int(instant[:4]), int(instant[4:6]), int(instant[6:8])
        moment = datetime(*date, int(instant[8:10]), int(instant[10:12]), int(instant[12:14]), tzinfo=zone)
    except ValueError as error:
        raise HudiFormatError(f"instant time {instant!r} is not a date and time: {error}") from error
    return (moment - _EPOCH) // _MILLISECOND + int(instant[14:])


class InstantGenerator:
    """Issues strictly increasing instant times: the clock's time, or 1 ms after the last time if that is
    later.

    So a clock that steps back never puts a new instant before an existing one (FORMAT.md, section 3.6).
    Across processes the table's lock makes the times unique: take the lock, `observe` the times of both
    timelines, then call `next`.
    """

    def __init__(self, clock: Clock, zone: tzinfo = UTC) -> None:
        self._clock = clock
        self._zone = zone
        self._last_ms = -1
        self.taken_ms: int | None = None
        """The last time that was issued, in milliseconds since the Unix epoch. Where other writers' clocks
        pushed
        it more than `_NEAR_MS` ahead of our clock: when it was issued, plus `_NEAR_MS`."""

    def observe(self, instants: Iterable[str]) -> None:
        """Makes `next` return later times than these requested or completion times; ignores bootstrap
        counters.
        """
        newest = max((instant for instant in instants if not is_bootstrap_instant(instant)), default=None)
        if newest is not None:
            self._last_ms = max(self._last_ms, instant_to_ms(newest, self._zone))

    def next(self) -> str:
        """A new instant time, later than every time that was issued or observed before."""
        now_ms = self._clock.now_ms()
        self._last_ms = max(now_ms, self._last_ms + 1)
        self.taken_ms = min(self._last_ms, now_ms + _NEAR_MS)
        return instant_from_ms(self._last_ms, self._zone)
