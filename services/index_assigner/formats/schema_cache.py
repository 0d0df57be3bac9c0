"""Schemas by id, made ready once. An id's schema never changes, so what was read is kept, up to a limit.

* The registry does not answer: InputWaitsError until it does; it is asked again ever more seldom, and each
  try that fails is logged.
* It has no such schema: it is asked again after a moment (a registry of several may lag behind its writer),
  then the id's records are refused; after a while the id is asked for anew. Where many unknown ids come at
  a time each is asked for once: no writer registers so many, and the input would wait for all of them.
* An id beyond `SCHEMA_ID_MAX` is none: registries count in 32 bits with a sign.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from index_assigner.errors import InputWaitsError
from index_assigner.shuffle.refusals import Reason
from stream_runtime.clock import Clock
from stream_runtime.schema_registry.ports import (
    RegistryUnavailableError,
    SchemaSource,
    StoredSchema,
    UnknownSchemaError,
)

SCHEMAS_MAX: Final = 1_000
SCHEMA_ID_MAX: Final = 2**31 - 1
_DOUBTED_MAX: Final = 10
_UNKNOWN_MAX: Final = 100_000
UNKNOWN_AFTER_S: Final = 2.0
_ASK_UNKNOWN_AFTER_S: Final = 60.0
_ASK_FOR_S: Final = 2.0
_WAIT_MIN_S: Final = 0.25
_WAIT_MAX_S: Final = 5.0
_log = logging.getLogger("tidemark.assigner")
T = TypeVar("T")


@dataclass(frozen=True)
class Unusable:
    """Why no record of a schema can be taken."""

    reason: Reason
    detail: str


@dataclass
class _Unknown:
    """An id that the registry did not have; ``since_s``: first asked, ``settled_s``: refused from then on."""

    since_s: float
    settled_s: float | None = None


class SchemaCache(Generic[T]):
    """``build`` makes a schema ready for use; it must not fail but say `Unusable`.

    A batch may name more ids than are kept, each of them once: its ids are kept until all of them are told.
    """

    def __init__(
        self, source: SchemaSource, build: Callable[[int, StoredSchema], T | Unusable], clock: Clock
    ) -> None:
        self._source = source
        self._build = build
        self._clock = clock
        self._known: OrderedDict[int, T | Unusable] = OrderedDict()
        self._unknown: dict[int, _Unknown] = {}
        self._unfinished = False
        self._failures = 0
        self._retry_at_s = 0.0

    def resolve(self, ids: Iterable[int]) -> dict[int, T | Unusable]:
        """All of them. Raises InputWaitsError when one cannot be told yet; the others are kept meanwhile."""
        if not self._unfinished:
            self._forget_unknown()
        self._unfinished = True
        until_s = self._clock.monotonic_s() + _ASK_FOR_S
        found: dict[int, T | Unusable] = {}
        waits: InputWaitsError | None = None
        for schema_id in ids:
            if schema_id > SCHEMA_ID_MAX:
                found[schema_id] = _refused(schema_id)
                continue
            if schema_id in self._known:
                self._known.move_to_end(schema_id)
                found[schema_id] = self._known[schema_id]
                continue
            if self._clock.monotonic_s() > until_s:
                # The caller has other duties; the next call goes on here.
                raise InputWaitsError("the input names more schemas than the registry told in a moment")
            try:
                found[schema_id] = self._ask(schema_id)
            except InputWaitsError as error:
                waits = error
        if waits is not None:
            raise waits
        self._unfinished = False
        while len(self._known) > SCHEMAS_MAX:
            self._known.popitem(last=False)
        return found

    def _forget_unknown(self) -> None:
        before_s = self._clock.monotonic_s() - _ASK_UNKNOWN_AFTER_S
        old = [
            each for each, entry in self._unknown.items() if (entry.settled_s or entry.since_s) <= before_s
        ]
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
        if now_s < self._retry_at_s:
            raise InputWaitsError("the schema registry did not answer, and is asked again in a moment")
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
            raise self._failed(error) from error
        self._answered()
        self._unknown.pop(schema_id, None)
        built = self._known[schema_id] = self._build(schema_id, stored)
        return built

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


def _refused(schema_id: int) -> Unusable:
    return Unusable(Reason.UNKNOWN_SCHEMA, f"the schema registry has no schema {schema_id}")
