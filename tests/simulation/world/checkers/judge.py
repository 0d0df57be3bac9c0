"""Holds the guarantees G1 to G8 of ARCHITECTURE.md: after each storage step and each event, and at the end.

A violation is remembered, not raised: whoever runs the world asks for it after each event, so that no
`except` of the product can swallow one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from tests.simulation.world.checkers import decode
from tests.simulation.world.checkers.bounds import Bounds
from tests.simulation.world.checkers.cleans import cleaned_files, listing_fault
from tests.simulation.world.checkers.indexes import Indexes
from tests.simulation.world.checkers.left_entries import left_entries
from tests.simulation.world.checkers.model import Change, ForeignRow, LastWriter, Row, differences, replayed
from tests.simulation.world.checkers.order import newest_completion, order_faults
from tests.simulation.world.checkers.secondary import DEFINITIONS, PROPERTIES
from tests.simulation.world.checkers.services import ServiceActions, is_doubled
from tests.simulation.world.checkers.slow_reader import SlowReader
from tests.simulation.world.checkers.table import (
    DATA_TIMELINE,
    METADATA_TIMELINE,
    NO_TIMELINE,
    BrokenTableError,
    Content,
    Reader,
    Timeline,
    View,
    parse_file,
)
from tests.simulation.world.checkers.topics import Counted, Decisions, Since, Topics, keyed_positions
from tests.simulation.world.checkers.traces import traces_of
from tests.simulation.world.checkers.transactions import count_faults, faults_of

FOREIGN_KEY: Final = "sim.foreign"
_EMPTY: Final = Content({}, {}, {})


class Look(NamedTuple):
    """What a reader sees, and the reader."""

    timeline: Timeline
    metadata: Timeline
    view: View
    content: Content
    reader: Reader


class Judge:
    """``bounds``: of what is not committed; ``attempts_max``: at one epoch."""

    def __init__(
        self,
        reader: Reader,
        read: Callable[[str], bytes],
        topics: Topics,
        ordered: bool,
        lanes: int,
        bounds: Bounds,
        attempts_max: int,
        tombstones_end: bool = False,
    ) -> None:
        self.violations: list[str] = []
        self._reader, self._read, self.topics, self.indexes = reader, read, topics, Indexes(reader, read)
        self._ordered, self._lanes = ordered, lanes
        self._bounds, self._attempts_max = bounds, attempts_max
        self._model = LastWriter(ordered, tombstones_end)
        self._keyed_next = dict.fromkeys(map(str, range(lanes)), 0)
        self.epoch = 0
        self._expected = _EMPTY
        self._timeline = self._metadata = NO_TIMELINE
        self._slow: SlowReader | None = None
        self._judged: set[int] = set()
        self._plans = 0
        self._entries = 0
        self._newest = ""
        self._applied: Counter[str] = Counter()
        self._foreign: list[ForeignRow] = []
        self._before: dict[str, dict[str, tuple[Row | None, int | None]]] = {}
        self._undone = set[str]()
        self._start: Mapping[str, Row] = {}
        self._gone: Mapping[str, int] = {}
        self.is_elsewhere = False

    def say(self, guarantee: str, text: str) -> None:
        """Notes a violation."""
        self.violations.append(f"{guarantee}: {text}")

    def _say_all(self, guarantee: str, texts: Iterable[str]) -> None:
        for text in texts:
            self.say(guarantee, text)

    def goes_on(self, since: Since, gone: Mapping[str, int]) -> None:
        """The table is there already, as it should be; its ledger begins here. ``gone``: ordering values of
        deletes that the former one had.
        """
        self.topics.since, self.epoch = since, since.epoch
        if self.topics.is_sharded:
            self._keyed_next.update(since.assign_next)
        self._timeline, self._metadata = self._reader.data_timeline(), self._reader.metadata_timeline()
        self._newest = max(newest_completion(self._timeline), newest_completion(self._metadata))
        self._follow_indexes()
        self._start, self._gone = dict(self.look().content.rows), gone
        self._model.begin(self._start, gone)
        self._expected = Content(dict(self._start), {}, {})

    def excuse(self, instant: str) -> None:
        """Another engine rolled a pending instant back that is being written: its files go when that is
        noticed.
        """
        self._reader.rolled_back |= {instant}

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Another engine acts, in its own order and by its own clock. What it leaves is looked at."""
        self.is_elsewhere = True
        try:
            with self.indexes.stats.watched(self.topics):
                yield
        finally:
            self.is_elsewhere = False
        try:
            self._follow_indexes(is_ours=False)
            self._follow_timelines(is_ours=False)
            self._look("after another engine's step")
        except BrokenTableError as error:
            self.say("G1", str(error))

    def _follow_indexes(self, is_ours: bool = True) -> None:
        """Whether the table has another secondary index now, or none."""
        self._say_all("G5", self.indexes.changed(self.look().view, is_ours))

    def undone(self, instant: str) -> None:
        """Another engine takes back a commit of its own."""
        self._undone.add(instant)

    @property
    def rows(self) -> dict[str, Row]:
        """What the table has to hold now."""
        return self._expected.rows

    # ------------------------------------------------------------ storage

    def stored(self, path: str) -> None:
        """Something changed at the path."""
        if self.is_elsewhere:
            return
        try:
            if path.startswith((DATA_TIMELINE, METADATA_TIMELINE)):
                self._follow_timelines()
            elif path in (PROPERTIES, DEFINITIONS):
                return self._follow_indexes()
            elif path.startswith(".hoodie") and not path.startswith(".hoodie/metadata"):
                return
            elif not path.startswith(".hoodie"):
                self._file_appeared(path)
            self._look("after a storage step")
        except BrokenTableError as error:
            self.say("G1", str(error))

    def _file_appeared(self, path: str) -> None:
        """G5: no data file is made of an instant that is not pending: it would be an orphan, or change a
        commit.
        """
        file = parse_file(path)
        if file is None or not self._reader.has(path):
            return
        if file.instant not in self._timeline.pending | self._reader.rolled_back:
            state = "committed" if file.instant in self._timeline.completed else "not on the timeline"
            self.say("G5", f"{path} appears although its instant is {state}")

    def _follow_timelines(self, is_ours: bool = True) -> None:
        before, self._timeline = self._timeline, self._reader.data_timeline()
        metadata_before, self._metadata = self._metadata, self._reader.metadata_timeline()
        self._check_order(before, self._timeline, metadata_before, self._metadata, is_ours)
        gone = [each for each in before.completed if each not in self._timeline.completed]
        for instant in sorted(gone, key=lambda each: before.completed[each], reverse=True):
            if instant in self._undone:
                self._take_back(instant)
            elif not self._timeline.counts(instant):
                self.say("G4", f"commit {instant} is gone from the timeline")
        for instant in sorted(self._timeline.completed.keys() - before.completed.keys()):
            self._committed(instant, self._timeline.completed[instant])

    def _take_back(self, instant: str) -> None:
        for key, (row, tombstone) in self._before.pop(instant, {}).items():
            self._model.put(key, row)
            if tombstone is not None:
                self._model.tombstones[key] = tombstone
        self._foreign = [each for each in self._foreign if each.by != instant]
        self._expect(self._reader.view(self._timeline))

    def _check_order(
        self, before: Timeline, after: Timeline, m_before: Timeline, m_after: Timeline, is_ours: bool
    ) -> None:
        if is_ours:
            for guarantee, text in order_faults(before, after, m_before, m_after, self._newest):
                self.say(guarantee, text)
        self._newest = max(self._newest, newest_completion(after), newest_completion(m_after))

    def _look(self, when: str) -> None:
        """G4: a reader sees exactly what the last commit left."""
        view = self._reader.view(self._timeline)
        self._same(self._reader.content(view), self._expected, self._timeline, when)

    def _same(self, found: Content, wanted: Content, timeline: Timeline, when: str) -> None:
        if found.rows != wanted.rows:
            self.say("G1", f"{when} rows differ from the model: {differences(found.rows, wanted.rows)}")
        right = {**found.places, **left_entries(found, timeline)}
        if found.indexed != right:
            self.say("G2", f"{when} the index is not the data: {differences(found.indexed, right)}")

    def look(self) -> Look:
        """The table as it is now, for who acts on it."""
        timeline = self._reader.data_timeline()
        view = self._reader.view(timeline)
        metadata, content = self._reader.metadata_timeline(), self._reader.content(view)
        return Look(timeline, metadata, view, content, self._reader)

    def reader_begins(self, now_ms: int) -> None:
        """A slow reader lists the data timeline."""
        timeline = self._reader.data_timeline()
        self._slow = SlowReader(timeline, self._expected, self._reader.view(timeline), now_ms)

    def reader_ends(self, now_ms: int, retain_ms: int) -> None:
        """… and now the rest: it sees what was committed then. ``retain_ms``: how long we keep files."""
        if self._slow is None:
            return
        slow, self._slow = self._slow, None
        cleans, ours = self._reader.cleans(), self.topics.cleans()
        lost = slow.lost({each: cleans[each] for each in cleans if each in ours}, self._reader.has)
        if lost and now_ms - slow.since_ms < retain_ms:
            self.say("G4", f"a slow reader lost {sorted(lost)} after {now_ms - slow.since_ms} ms")
        if slow.is_late(cleans, self._metadata.compactions, self._reader.has):
            return
        try:
            found = self._reader.content(self._reader.view(slow.timeline))
            self._same(found, slow.expected, slow.timeline, "for a slow reader")
        except BrokenTableError as error:
            self.say("G4", f"a slow reader: {error}")

    # ------------------------------------------------------------ commits

    def _committed(self, instant: str, completion: str) -> None:
        word = next(n for n in self._reader._names(DATA_TIMELINE) if n.startswith(f"{instant}_{completion}."))
        commit = decode.avro_document(self._read(f"{DATA_TIMELINE}/{word}"))
        extra = commit.get("extraMetadata") or {}
        if FOREIGN_KEY in extra:
            self._before[instant] = {}
            for key, values in json.loads(extra[FOREIGN_KEY]).items():
                row = Row(*values) if values is not None else None
                self._before[instant][key] = (self._model.rows.get(key), self._model.tombstones.get(key))
                self._model.put(key, row)
                self._foreign.append(ForeignRow(key, self._applied[key], row, instant))
        elif "tidemark.epoch" in extra:
            self._epoch_committed(instant, extra)
        view = self._reader.view(self._timeline)
        self._say_all("G5", self.indexes.faults(instant, commit, self.topics.decisions, view))
        self._expect(view)
        self._check_listing(view, instant)

    def _expect(self, view: View) -> None:
        """From here on the table has to hold what the model does."""
        self._model.settle(self._reader.content(view).rows)
        self._expected = Content(dict(self._model.rows), {}, {})

    def _check_listing(self, view: View, instant: str) -> None:
        """G5: the `files` partition lists what is there and committed."""
        open_ones, listed = ServiceActions(self.topics.decisions).instants(), self._reader.listing(view)
        paths = [file.path for file in view.data if not is_doubled(file, listed, open_ones)]
        if fault := listing_fault(listed, self._reader.partitions(view), paths, self._cleaned()[0]):
            self.say("G5", f"commit {instant}: {fault}")

    def _cleaned(self) -> tuple[set[str], set[str]]:
        return cleaned_files(self._reader.cleans(), self._timeline, self._metadata)

    def _epoch_committed(self, instant: str, extra: dict[str, str]) -> None:
        epoch = int(extra["tidemark.epoch"])
        if epoch <= self.epoch:
            self.say("G1", f"instant {instant} commits epoch {epoch} after epoch {self.epoch}")
        self.epoch = epoch
        self.topics.follow()
        decisions, counted = self.topics.counted()
        stood = keyed_positions(counted, decisions.through)
        keyed = json.loads(extra["tidemark.keyed_offsets"]).get(self.topics.keyed_topic, {})
        for lane, (first, after) in sorted(keyed.items()):
            if first != stood.get(lane, 0) or after < first:
                self.say("G6", f"epoch {epoch} has {first}..{after} of lane {lane}, it stood at {stood}")
        self._apply({lane: after for lane, (_, after) in keyed.items()})
        self._check_sources(epoch, extra, decisions, counted)
        records = json.loads(extra["tidemark.records"])
        words = ["inserts", "updates", "deletes", "superseded", "no_ops"]
        words += ["dead_letter"] if self.topics.is_sharded else []
        if records["input"] != sum(records[word] for word in words):
            self.say("G8", f"epoch {epoch}: {records} does not add up")

    def _apply(self, positions: dict[str, int]) -> None:
        """Plays what lies before these positions of the lanes and was not played yet."""
        _, counted = self.topics.counted()
        for lane, end in sorted(positions.items()):
            for offset, change in self.topics.changes(counted, int(lane)):
                if self._keyed_next[lane] <= offset < end:
                    self._model.apply(change)
                    self._applied[change.key] += 1
            self._keyed_next[lane] = max(end, self._keyed_next[lane])

    def _check_sources(
        self, epoch: int, extra: dict[str, str], decisions: Decisions, counted: Counted
    ) -> None:
        """G6: the input positions of a commit follow those of the epoch before without gap or overlap."""
        if decisions.planned is None:
            self.say("G6", f"epoch {epoch} was called committed before it was: nobody would have finished it")
            return
        ends = (decisions.through, decisions.planned["through"])
        before, after = (self.topics.sources(counted, end) for end in ends)
        sources = json.loads(extra["tidemark.source_offsets"])
        found = {f"{topic}:{n}": tuple(at) for topic, each in sources.items() for n, at in each.items()}
        wanted = {lane: (before.get(lane, 0), position) for lane, position in after.items()}
        if found != wanted:
            self.say("G6", f"epoch {epoch} has the input positions {found}, not {wanted}")

    # ------------------------------------------------------------ topics

    def happened(self) -> None:
        """After an event: what is new in the topics."""
        entries = self.topics.follow()
        if entries == self._entries:
            return
        self._entries = entries
        decisions, counted = self.topics.counted()
        self._check_transactions(counted)
        self._say_all("G7", self._bounds.faults(decisions, counted))
        for plan in decisions.plans[self._plans :]:
            if plan["attempt"] > self._attempts_max:
                self.say("G7", f"epoch {plan['epoch']} is tried for the {plan['attempt']}th time")
            if plan["instant"] is None:
                # It changes no row. What its deletes leave behind holds from here on.
                self._apply(keyed_positions(counted, plan["through"]))
                self._expect(self._reader.view(self._timeline))
        self._plans = len(decisions.plans)

    def _check_transactions(self, counted: Counted) -> None:
        for offset, entry in counted.tagged:
            if offset not in self._judged and self.topics.is_readable(entry):
                self._judged.add(offset)
                for guarantee, text in faults_of(self.topics, offset, entry, self._ordered):
                    self.say(guarantee, text)

    # ------------------------------------------------------------ the end

    def waits_for(self, sent: dict[str, int]) -> str | None:
        """Why the world is not at rest: input (records per input lane) that is not committed; None: it is."""
        self.topics.follow()
        decisions, counted = self.topics.counted()
        if decisions.planned is not None:
            return f"epoch {decisions.planned['epoch']} is planned"
        taken = self.topics.taken(counted)
        for lane, end in sent.items():
            if taken.get(lane, 0) < end:
                return f"input {lane} is taken to {taken.get(lane, 0)} of {end}"
        for number in range(self._lanes):
            changes = self.topics.changes(counted, number)
            tagged = counted.assign_next.get(str(number), 0)
            if changes and tagged <= changes[-1][0]:
                return f"lane {number} is tagged to {tagged}, not {changes[-1][0] + 1}"
        if any(offset > decisions.through for offset, _ in counted.tagged):
            return "tagged transactions are not committed"
        return None

    def at_rest(self, changes: Iterable[Change], sent: int, broken: int) -> None:
        """G1, G6, G8: with all input committed the table is a replay of the input itself, in its own
        order, with other engines' inserts where they were committed.
        """
        # The last epochs may have changed no row, and so no storage step followed on them.
        self._look("at rest")
        begun = self._expected.rows, self._start, self._gone
        wanted = replayed(changes, self._foreign, self._ordered, self._model.ends, *begun)
        if wanted != self._expected.rows:
            self.say("G1", f"at rest: {differences(self._expected.rows, wanted)}")
        decisions, counted = self.topics.counted()
        self._check_transactions(counted)
        if len(self._judged) < len(counted.tagged):
            self.say("G3", "a counting transaction cannot be read at rest")
        self._say_all("G6", decisions.wrong)
        for guarantee, text in count_faults(self.topics, counted, sent, broken):
            self.say(guarantee, text)

    def check_traces(self, paths: Iterable[str], deletions_lost: bool) -> None:
        """G5: nothing of an attempt is left; each data file belongs to a commit that names it. After
        ``deletions_lost``, a machine's crash, markers and heartbeats of ended instants may be back.
        """
        timeline, gone = self._timeline, self._reader.rolled_back
        cleaned = self._cleaned()
        self._say_all("G5", traces_of(list(paths), timeline, gone, self._read, cleaned, deletions_lost))
