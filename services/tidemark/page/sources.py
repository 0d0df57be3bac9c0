"""The page's data sources: calls of the admin API, and snapshots (`Pictures`) that no call returns.

The snapshots are read every second (records that passed each stage), are too large for an answer (the sizes
of all file groups), or have bytes of records (dead letters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.record_formats.refusals import Reason
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.messages import epoch_of, status_of
from tidemark.table_status.status import Status

Found: TypeAlias = pb.LookupResponse.Found
SizedGroup: TypeAlias = tuple[str, str, int]
"""(partition path, file id, bytes of the newest slice) of a file group."""
_EPOCHS_MAX: Final = 1_000


class AdminCalls(Protocol):
    """The calls of `tidemark.admin.v1.Admin` that the page needs. The service itself, in the same process,
    has them, and so has a client.

    Each raises `StreamRuntimeError` of the kinds that the service raises.
    """

    def Status(self, request: pb.StatusRequest, context: object, /) -> pb.StatusResponse:  # noqa: N802
        """The service's status. The proto describes this call and the two others."""
        ...

    def ListEpochs(  # noqa: N802
        self, request: pb.ListEpochsRequest, context: object, /
    ) -> pb.ListEpochsResponse: ...

    def Lookup(self, request: pb.LookupRequest, context: object, /) -> pb.LookupResponse:  # noqa: N802
        ...


class AdminQuestions:
    """Calls the admin API for the page, and returns types. Thread-safe if the calls are."""

    def __init__(self, calls: AdminCalls, table: str) -> None:
        self._calls, self._table = calls, table

    def status(self) -> Status:
        """The coordinator's status of the table."""
        return status_of(self._calls.Status(pb.StatusRequest(table=self._table), None).status)

    def epochs(self, limit: int) -> list[EpochRecord]:
        """The newest epochs, newest first."""
        return self._pages(pb.ListEpochsRequest(table=self._table, limit=limit))

    def of_instants(self, instants: frozenset[str]) -> dict[str, EpochRecord]:
        """The epochs by the Hudi instant that committed them, for the instants that the coordinator
        remembers.
        """
        if not instants:
            return {}
        request = pb.ListEpochsRequest(table=self._table, limit=_EPOCHS_MAX, instants=sorted(instants))
        return {str(record.instant): record for record in self._pages(request)}

    def _pages(self, request: pb.ListEpochsRequest) -> list[EpochRecord]:
        """Up to `request.limit` epochs, by as many calls as that takes: an answer's size is limited as
        well.
        """
        wanted, records = request.limit, list[EpochRecord]()
        while len(records) < wanted:
            answer = self._calls.ListEpochs(request, None)
            records += [epoch_of(message) for message in answer.epochs]
            request.page_token, request.limit = answer.next_page_token, wanted - len(records)
            if not answer.next_page_token:
                break
        return records

    def lookup(self, keys: list[str], partition: str | None) -> Iterable[Found]:
        """The locations of the keys. ``partition``: the path of their partition, with a partitioned record
        index.
        """
        request = pb.LookupRequest(table=self._table, keys=keys, partition=partition)
        return self._calls.Lookup(request, None).found


class RecordsPassed(NamedTuple):
    """How many records have passed each stage since the ledger began."""

    shuffled: int
    tagged: int
    committed: int


@dataclass(frozen=True)
class RefusedRecord:
    """A dead letter with the refused record's key and value, which may be long."""

    id: int
    reason: Reason
    detail: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class NewestLetters:
    """The newest dead letters, newest first. ``reasons`` counts all that were read, by reason."""

    newest: list[RefusedRecord] = field(default_factory=list)
    reasons: Counter[Reason] = field(default_factory=Counter)


@dataclass(frozen=True)
class Pictures:
    """The snapshots that the page reads beside its calls. ``passed`` returns None until the coordinator has
    taken the table over; ``groups`` the file groups with their sizes; ``dead_letters`` may raise KafkaError.
    """

    passed: Callable[[], RecordsPassed | None]
    groups: Callable[[], Sequence[SizedGroup]]
    dead_letters: Callable[[], NewestLetters]
