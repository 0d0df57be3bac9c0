"""Stores the counts of `domain.reader_deaths` in the table's folder, so that they outlive a coordinator.

The cause of a reader's death may also end the coordinator beside it: the machine runs out of memory, the
kernel kills all processes of a container, systemd stops the whole of `tidemark run`. A count in memory alone
would begin anew each time, and never reach two.

So if a coordinator did not end in order, its successor counts a death for every lane that had an owner then.
Nobody is left who could say whether these owners died as well. If they did not, some lanes are read in a
separate process without need, which does no harm.
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
    """The stored document. ``deaths``: stage → lane → count.

    ``serving``: the coordinator that wrote it serves, or died; False: it ended in order.
    """

    serving: bool = False
    deaths: dict[str, dict[str, DeathsAt]] = {}


def reads_input(stage: Stage, shuffles: bool) -> bool:
    """Whether the stage reads the input. Other stages read only what Tidemark wrote: no reader dies of that.

    ``shuffles``: there is a shuffle stage.
    """
    return stage is Stage.SHUFFLE or not shuffles


def at_takeover(stored: ReaderDeaths, state: FoldState) -> dict[tuple[Stage, str], DeathsAt]:
    """The counts with which a coordinator starts: the stored ones, except of lanes that have moved on since.

    If the former coordinator died, every lane with an owner gets one more death. ``state``: the fold's.
    """
    counts: dict[tuple[Stage, str], DeathsAt] = {}
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
                counts[stage, name] = known
    return counts


class DeathRecord:
    """The counts of this coordinator; thread-safe. They are in memory alone until `took_over`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[Stage, str], DeathsAt] = {}
        self._place: Term | None = None
        self._written: ReaderDeaths | None = None

    def took_over(self, term: Term, state: FoldState) -> None:
        """Starts with the stored counts; stores them under ``term`` from now on."""
        with self._lock:
            self._counts = at_takeover(_read(term.storage), state)
            self._place = term
        self.keep()

    def died(self, stage: Stage, lane: str, position: int) -> DeathsAt:
        """Counts one more death of the lane's reader at ``position``; the next `keep` stores it."""
        with self._lock:
            counted = after_death(self._counts.get((stage, lane)), position)
            self._counts[stage, lane] = counted
            return counted

    def get(self, stage: Stage, lane: str) -> DeathsAt | None:
        """The lane's count, None when no reader of it died."""
        with self._lock:
            return self._counts.get((stage, lane))

    def keep(self, serving: bool = True) -> None:
        """Stores the counts if they have changed. ``serving``: False when the coordinator ends in order.

        If the storage refuses, the next call tries again.
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
            # The term has ended: from here on a successor counts.
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
        _log.warning("the counts of readers' deaths are lost and begin anew: %s", error)
        return ReaderDeaths()
