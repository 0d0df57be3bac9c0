"""The counts of `domain.reader_deaths`, kept with the table, so that they outlive a coordinator.

What ends the reader of a lane may end all that runs beside it: a machine's memory is used up, a container's
kernel ends its processes together, systemd stops the whole of `tidemark run`. A count in memory alone would
begin anew each time, and never reach two. So a coordinator that ended without a good-bye counts as a death of
the readers that held lanes then: nobody else is there to say whether they died with it. If they did not, a
lane too much is read apart, which stops nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

import msgspec

from tidemark.commit_coordinator.domain.reader_deaths import DeathsAt, after_death
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.state import FoldState, LaneState
from tidemark.hudi_format.errors import (
    CorruptFileError,
    FencedOutError,
    FileMissingError,
    HudiFormatError,
)
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_document

READER_DEATHS: Final = join_path(ROOT, "reader-deaths.json")
_log = logging.getLogger("tidemark.coordinator")


class ReaderDeaths(msgspec.Struct, frozen=True):
    """The stored document. ``serving``: who wrote it serves, or ended without a good-bye. ``deaths``: stage →
    lane → count.
    """

    serving: bool = False
    deaths: dict[str, dict[str, DeathsAt]] = {}


def reads_input(stage: Stage, shuffles: bool) -> bool:
    """Whether the stage reads the input: nobody dies of what Tidemark wrote itself."""
    return stage is Stage.SHUFFLE or not shuffles


def at_takeover(stored: ReaderDeaths, state: FoldState) -> dict[tuple[Stage, str], DeathsAt]:
    """What counts when a coordinator takes over with the fold ``state``."""
    found: dict[tuple[Stage, str], DeathsAt] = {}
    lanes: Mapping[Stage, Mapping[str, LaneState]] = {
        Stage.SHUFFLE: state.shuffle_lanes,
        Stage.ASSIGN: state.assign_lanes,
    }
    for stage in Stage:
        if not reads_input(stage, bool(state.shuffle_lanes)):
            continue
        for name, lane in lanes[stage].items():
            known = stored.deaths.get(stage.value, {}).get(name)
            if known is not None and known.position != lane.next:
                known = None
            if stored.serving and lane.slot is not None:
                known = after_death(known, lane.next)
            if known is not None:
                found[stage, name] = known
    return found


class DeathRecord:
    """Thread-safe. Counts in memory until `took_over` says where to keep them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[Stage, str], DeathsAt] = {}
        self._place: Term | None = None
        self._written: ReaderDeaths | None = None

    def took_over(self, term: Term, state: FoldState) -> None:
        """``term``: with it ends the right to write."""
        with self._lock:
            self._counts = at_takeover(_read(term.storage), state)
            self._place = term
        self.keep()

    def died(self, stage: Stage, lane: str, position: int) -> DeathsAt:
        """The lane's reader died; `keep` stores it."""
        with self._lock:
            counted = after_death(self._counts.get((stage, lane)), position)
            self._counts[stage, lane] = counted
            return counted

    def get(self, stage: Stage, lane: str) -> DeathsAt | None:
        """None: nobody died."""
        with self._lock:
            return self._counts.get((stage, lane))

    def keep(self, serving: bool = True) -> None:
        """Stores the counts when they are news. ``serving``: False is the good-bye. What cannot be stored now
        is tried again with the next call.
        """
        with self._lock:
            deaths: dict[str, dict[str, DeathsAt]] = {}
            for (stage, lane), counted in self._counts.items():
                deaths.setdefault(stage.value, {})[lane] = counted
            wanted, place = ReaderDeaths(serving, deaths), self._place
        if place is None or wanted == self._written:
            return
        try:
            place.replace(READER_DEATHS, msgspec.json.encode(wanted, order="sorted"))
        except FencedOutError:
            # A successor counts on.
            self._place = None
            return
        except (OSError, HudiFormatError) as error:
            _log.warning("%s could not be written, trying again: %s", READER_DEATHS, error)
            return
        self._written = wanted


def _read(storage: Storage) -> ReaderDeaths:
    try:
        return read_document(storage, READER_DEATHS, ReaderDeaths)
    except FileMissingError:
        return ReaderDeaths()
    except CorruptFileError as error:
        _log.warning("counting of readers' deaths begins anew: %s", error)
        return ReaderDeaths()
