"""Where the page gets what it shows: calls of the admin API, and pictures that no call carries.

The pictures are looked at every second or are too large for an answer (records that passed each stage, the
sizes of all file groups), or begin with bytes of records (dead letters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.messages import epoch_of, status_of
from tidemark.table_status.status import Status

Found: TypeAlias = pb.LookupResponse.Found
SizedGroup: TypeAlias = tuple[str, str, int]
"""(partition path, file id, bytes of the newest slice) of a file group."""
_EPOCHS_MAX: Final = 1_000


class AdminCalls(Protocol):
    """What the page asks of `tidemark.admin.v1.Admin`: the service itself, in its process, or a client.

    Each raises what the service raises, `StreamRuntimeError` and its kinds.
    """

    def Status(self, request: pb.StatusRequest, context: object, /) -> pb.StatusResponse:  # noqa: N802
        """As the proto says; the other two as well."""
        ...

    def ListEpochs(  # noqa: N802
        self, request: pb.ListEpochsRequest, context: object, /
    ) -> pb.ListEpochsResponse: ...

    def Lookup(self, request: pb.LookupRequest, context: object, /) -> pb.LookupResponse:  # noqa: N802
        ...


class AdminQuestions:
    """The page's questions as calls, the answers as types. Thread-safe as the calls are."""

    def __init__(self, calls: AdminCalls, table: str) -> None:
        self._calls, self._table = calls, table

    def status(self) -> Status:
        """All that the coordinator says of the table."""
        return status_of(self._calls.Status(pb.StatusRequest(table=self._table), None).status)

    def epochs(self, limit: int) -> list[EpochRecord]:
        """The newest epochs, newest first."""
        return self._pages(pb.ListEpochsRequest(table=self._table, limit=limit))

    def of_instants(self, instants: frozenset[str]) -> dict[str, EpochRecord]:
        """Hudi instant -> the epoch that it committed, for those that are remembered."""
        if not instants:
            return {}
        request = pb.ListEpochsRequest(table=self._table, limit=_EPOCHS_MAX, instants=sorted(instants))
        return {str(each.instant): each for each in self._pages(request)}

    def _pages(self, request: pb.ListEpochsRequest) -> list[EpochRecord]:
        """So many epochs as the request wants; a page of them ends at the size of an answer, too."""
        wanted, found = request.limit, list[EpochRecord]()
        while len(found) < wanted:
            answer = self._calls.ListEpochs(request, None)
            found += [epoch_of(each) for each in answer.epochs]
            request.page_token, request.limit = answer.next_page_token, wanted - len(found)
            if not answer.next_page_token:
                break
        return found

    def lookup(self, keys: list[str]) -> Iterable[Found]:
        """Where the keys live."""
        return self._calls.Lookup(pb.LookupRequest(table=self._table, keys=keys), None).found


class RecordsPassed(NamedTuple):
    """Records that had passed each stage, since the ledger began."""

    shuffled: int
    tagged: int
    committed: int


@dataclass(frozen=True)
class RefusedRecord:
    """A dead letter with the refused record's key and value, which may be long."""

    id: int
    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class NewestLetters:
    """``newest``: newest first; ``reasons`` counts all that were looked at."""

    newest: list[RefusedRecord] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Pictures:
    """Beside the calls. ``passed``: None until the table is taken over. ``letters`` may raise KafkaError."""

    passed: Callable[[], RecordsPassed | None]
    groups: Callable[[], Sequence[SizedGroup]]
    letters: Callable[[], NewestLetters]
