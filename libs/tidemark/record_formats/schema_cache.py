"""A cache of prepared schemas by id. The schema of an id never changes, so it is kept, up to a limit.

* The registry does not answer: `resolve` raises InputWaitsError until it does. The wait between tries grows
  up to 5 s, and each failed try is logged.
* The registry has no such schema: it is asked again after 2 s, because one node of a registry may lag
  behind another. Then the id's records are refused, and after 60 s the id is asked for anew. When more than
  10 ids are unknown at a time, each further one is asked for only once: no writer registers so many, and
  the input would wait for each.
* The registry answers for other ids, but not for this one (an error, or an answer that is too long, too
  slow or no schema): after `FAILS_ALONE_AFTER_S` the id's records are refused, because one schema must not
  stop a table. Each time another id is asked for as well, so that nothing is refused while the registry is
  down.
* An id above `SCHEMA_ID_MAX` is refused: registries count ids in signed 32 bits.
* A batch may name any number of ids. They are resolved in the order of the records. When one has to wait,
  InputWaitsError says how many records before it need not. So every call either resolves some records, or
  waits for the first record's schema only. Schemas evicted meanwhile cannot lead to an endless loop.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np

from tidemark.record_formats.decoder import Int64Array
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.record_formats.wire_format import NOT_FRAMED
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.schema_registry.ports import (
    RegistryUnavailableError,
    SchemaSource,
    StoredSchema,
    UnknownSchemaError,
)

SCHEMAS_MAX: Final = 1_000
PARTS_MAX: Final = 100_000
"""Limit of the parts (`avro_schema.count_parts`) of all kept schemas: some 700 bytes of memory each."""
SCHEMA_ID_MAX: Final = 2**31 - 1
_DOUBTED_MAX: Final = 10
_UNKNOWN_MAX: Final = 100_000
UNKNOWN_AFTER_S: Final = 2.0
_ASK_UNKNOWN_AFTER_S: Final = 60.0
FAILS_ALONE_AFTER_S: Final = 10.0
_ASK_FAILING_AFTER_S: Final = 600.0
_ASK_FOR_S: Final = 2.0
_WAIT_MIN_S: Final = 0.25
_WAIT_MAX_S: Final = 5.0
_DETAIL_CHARACTERS_MAX: Final = 300
_log = logging.getLogger("tidemark.assigner")
T = TypeVar("T")


@dataclass(frozen=True)
class Unusable:
    """A schema of which no record can be decoded, and why."""

    reason: DeadLetterReason
    detail: str


@dataclass
class _Unknown:
    """An id that the registry lacks. ``since_s``: when it was first asked for; ``settled_s``: refused since
    then.
    """

    since_s: float
    settled_s: float | None = None


@dataclass
class _Failing:
    """An id for which the registry fails although it answers for others. ``refused_s``:
    refused since then.
    """

    since_s: float
    error: str
    tries: int = 0
    ask_at_s: float = 0.0
    refused_s: float | None = None


class SchemaCache(Generic[T]):
    """Schemas by id. ``build`` prepares a schema; it must not raise, but return `Unusable`. ``parts_of``: the
    number of parts of a prepared schema.
    """

    def __init__(
        self,
        source: SchemaSource,
        build: Callable[[int, StoredSchema], T | Unusable],
        clock: Clock,
        parts_of: Callable[[T], int] = lambda _: 1,
    ) -> None:
        self._source = source
        self._build = build
        self._parts_of = parts_of
        self._parts = 0
        self._failing: dict[int, _Failing] = {}
        self._clock = clock
        self._known: OrderedDict[int, T | Unusable] = OrderedDict()
        self._unknown: dict[int, _Unknown] = {}
        self._unfinished = False
        self._failures = 0
        self._retry_at_s = 0.0

    def resolve(self, ids: Int64Array, positions: Int64Array) -> dict[int, T | Unusable]:
        """Returns the schemas of these ids; `NOT_FRAMED` is left out.

        ``ids``: per record, in order; ``positions``: the records' positions. Raises InputWaitsError when a
        schema is not known yet; its ``before`` is the position of the first record that has it. The schemas
        of the records before that are kept, so a call for those alone succeeds at once.
        """
        # Each distinct id with the position of its first record, in the records' order: ids 9, 4, 9 at
        # positions 0, 1, 2 give {9: 0, 4: 1}.
        unique, at = np.unique(ids, return_index=True)
        order = np.argsort(at)
        first = {one: int(positions[i]) for one, i in zip(unique[order].tolist(), at[order], strict=True)}
        first.pop(NOT_FRAMED, None)
        if not self._unfinished:
            self._forget_unknown()
        self._unfinished = True
        until_s = self._clock.monotonic_s() + _ASK_FOR_S
        resolved: dict[int, T | Unusable] = {}
        waits: InputWaitsError | None = None
        parts = 0
        for schema_id, before in first.items():
            if schema_id > SCHEMA_ID_MAX:
                resolved[schema_id] = _refused(schema_id)
                continue
            if schema_id in self._known:
                self._known.move_to_end(schema_id)
                resolved[schema_id] = self._known[schema_id]
                parts += self._size(resolved[schema_id])
                continue
            if self._clock.monotonic_s() > until_s:
                # The caller must not be kept longer (its loop also follows the lease). The next call goes
                # on here.
                text = "the input names more schemas than the registry told in a moment"
                raise waits or InputWaitsError(text, before)
            try:
                resolved[schema_id] = self._ask(schema_id)
            except InputWaitsError as error:
                waits = waits or InputWaitsError(str(error), before)
            size = self._size(self._known[schema_id]) if schema_id in self._known else 0
            if parts and parts + size > PARTS_MAX:
                self._forget(schema_id)
                text = f"the input names schemas of more than {PARTS_MAX} parts together"
                raise waits or InputWaitsError(text, before)
            parts += size
            # This evicts no schema of this call: those are the newest, and fit within the limit together.
            while self._parts > PARTS_MAX and len(self._known) > 1:
                self._forget(next(iter(self._known)))
        if waits is not None:
            raise waits
        self._unfinished = False
        while len(self._known) > SCHEMAS_MAX:
            self._forget(next(iter(self._known)))
        return resolved

    def _size(self, schema: T | Unusable) -> int:
        return 1 if isinstance(schema, Unusable) else self._parts_of(schema)

    def _forget(self, schema_id: int) -> None:
        self._parts -= self._size(self._known.pop(schema_id))

    def _forget_unknown(self) -> None:
        before_s = self._clock.monotonic_s() - _ASK_UNKNOWN_AFTER_S
        old = [one for one, entry in self._unknown.items() if (entry.settled_s or entry.since_s) <= before_s]
        for schema_id in old:
            del self._unknown[schema_id]

    def _ask(self, schema_id: int) -> T | Unusable:
        now_s = self._clock.monotonic_s()
        unknown = self._unknown.get(schema_id)
        if unknown is not None:
            if unknown.settled_s is not None:
                return _refused(schema_id)
            if now_s - unknown.since_s < UNKNOWN_AFTER_S:
                raise _not_yet(schema_id)
        failing = self._failing.get(schema_id)
        if failing is not None and (refused := self._still_failing(schema_id, failing, now_s)):
            return refused
        if now_s < self._retry_at_s:
            raise InputWaitsError(
                f"the schema registry did not answer for schema {schema_id}; it is asked again in "
                f"{self._retry_at_s - now_s:.1f} s, and the batch waits"
            )
        try:
            stored = self._source.fetch(schema_id)
        except UnknownSchemaError:
            self._answered()
            if unknown is None:
                many = len(self._unknown) >= _DOUBTED_MAX
                self._unknown[schema_id] = _Unknown(now_s, now_s if many else None)
                if len(self._unknown) > _UNKNOWN_MAX:
                    del self._unknown[next(iter(self._unknown))]
                if many:
                    return _refused(schema_id)
                raise _not_yet(schema_id) from None
            unknown.settled_s = now_s
            return _refused(schema_id)
        except RegistryUnavailableError as error:
            if not self._answers_others(schema_id):
                self._failing.clear()
                raise self._failed(error) from error
            return self._fails_alone(schema_id, error)
        self._answered()
        self._unknown.pop(schema_id, None)
        self._failing.pop(schema_id, None)
        built = self._known[schema_id] = self._build(schema_id, stored)
        self._parts += self._size(built)
        return built

    def _answers_others(self, schema_id: int) -> bool:
        """Whether the registry answers now for another id: a known schema, or one that it cannot have."""
        none = SCHEMA_ID_MAX - 1 if schema_id == SCHEMA_ID_MAX else SCHEMA_ID_MAX
        other = next(reversed(self._known), none)
        try:
            self._source.fetch(other)
        except UnknownSchemaError:
            return True
        except RegistryUnavailableError:
            return False
        return True

    def _fails_alone(self, schema_id: int, error: RegistryUnavailableError) -> Unusable:
        """Handles an id for which only this one fails: refuses it after `FAILS_ALONE_AFTER_S`; raises
        InputWaitsError before.
        """
        self._answered()
        now_s = self._clock.monotonic_s()
        failing = self._failing.setdefault(schema_id, _Failing(now_s, str(error)))
        if len(self._failing) > _UNKNOWN_MAX:
            del self._failing[next(iter(self._failing))]
        if now_s - failing.since_s >= FAILS_ALONE_AFTER_S:
            failing.refused_s = now_s
            _log.error(
                "schema %d is refused: the registry answers for others, and for it: %s", schema_id, error
            )
            return _unusable(schema_id, failing.error)
        failing.ask_at_s = now_s + min(_WAIT_MIN_S * 2.0**failing.tries, _WAIT_MAX_S)
        failing.tries += 1
        _log.warning("input waits for schema %d, nothing is lost: %s", schema_id, error)
        raise InputWaitsError(str(error))

    def _still_failing(self, schema_id: int, failing: _Failing, now_s: float) -> Unusable | None:
        """The refusal of an id that failed before; None when it is time to ask again.

        Raises InputWaitsError between two tries.
        """
        if failing.refused_s is None:
            if now_s < failing.ask_at_s:
                raise InputWaitsError(failing.error)
            return None
        if now_s - failing.refused_s < _ASK_FAILING_AFTER_S:
            return _unusable(schema_id, failing.error)
        del self._failing[schema_id]
        return None

    def _answered(self) -> None:
        if self._failures:
            _log.info("the schema registry answers again")
        self._failures, self._retry_at_s = 0, 0.0

    def _failed(self, error: RegistryUnavailableError) -> InputWaitsError:
        wait_s = min(_WAIT_MIN_S * 2.0 ** min(self._failures, 16), _WAIT_MAX_S)
        self._failures += 1
        self._retry_at_s = self._clock.monotonic_s() + wait_s
        _log.warning("input waits, nothing is lost: %s; asked again in %g s", error, wait_s)
        return InputWaitsError(str(error))


def _not_yet(schema_id: int) -> InputWaitsError:
    return InputWaitsError(f"the schema registry has no schema {schema_id} yet")


def _unusable(schema_id: int, error: str) -> Unusable:
    detail = f"the schema registry has no usable answer for schema {schema_id}: {error}"
    return Unusable(DeadLetterReason.UNKNOWN_SCHEMA, detail[:_DETAIL_CHARACTERS_MAX])


def _refused(schema_id: int) -> Unusable:
    return Unusable(DeadLetterReason.UNKNOWN_SCHEMA, f"the schema registry has no schema {schema_id}")
