"""A thin client of the gRPC service `tidemark.admin.v1.Admin`: it turns messages into documents and types."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import grpc

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.admin.v1 import admin_pb2_grpc
from tidemark.config import TableConfigFile, load_config
from tidemark.config.run_file import resolve_addresses, why_silent
from tidemark.console.errors import CliError
from tidemark.console.served_table import check_served
from tidemark.epoch_protocol.entries import TableLocation
from tidemark.ledger_client.dead_letters import (
    PAGE_MAX,
    DeadLetter,
    LetterFilter,
    LetterPage,
    LetterRetention,
    WholeLetter,
    all_letters,
)
from tidemark.ledger_client.table_identity import Served
from tidemark.record_formats.refusals import reason_named
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.security.client import ClientSecurity, client_security
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.messages import epoch_of, services_of, status_of
from tidemark.table_status.services import OwnServices
from tidemark.table_status.status import Status

if TYPE_CHECKING:
    import pyarrow as pa

    from tidemark.hudi_format.value_lookup import ValuePage


def served_of(message: pb.ServesResponse) -> Served:
    """The answer of `Serves`. A coordinator of a former version does not send the table's location."""
    at = message.location
    location = TableLocation(at.path, at.file, at.identity) if message.HasField("location") else None
    return Served(message.path, message.served_by, location)


def letter_of(message: pb.DeadLetter) -> DeadLetter:
    """A dead letter without its key, value and headers."""
    return DeadLetter(
        reason=reason_named(message.reason),
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        detail=message.detail,
        id=message.id,
        timestamp_ms=message.timestamp_ms,
        cut=tuple(message.cut),
        replays=message.replays,
        replayed=message.replayed,
    )


def filter_message(wanted: LetterFilter) -> pb.DeadLetterFilter:
    """The filter as a message."""
    return pb.DeadLetterFilter(
        topic=wanted.topic,
        partition=wanted.partition,
        offset=wanted.offset,
        reason=wanted.reason,
        ids=sorted(wanted.ids or ()),
        since_ms=wanted.since_ms,
    )


# The coordinator answers within its own deadlines (its `admin/limits.py`). The client waits a little longer.
_MARGIN_S: Final = 5.0
_KEYS_AT_ONCE: Final = 5_000
_RETRY_S: Final = 20.0
_SKIP_S: Final = 180.0
_RUN_S: Final = 60.0 + _MARGIN_S
_VALUES_S: Final = 60.0 + _MARGIN_S
_LETTERS_S: Final = 150.0 + _MARGIN_S


class NobodyAnswersError(CliError):
    """No coordinator answers at the configured address."""


@dataclass(frozen=True)
class ReplayedPage:
    """The result of one call of a replay: `done` records were produced again, `skipped` says why each of its
    dead letters was left out. `next_token` is "" on the last page.
    """

    done: int
    chosen: list[DeadLetter]
    skipped: list[tuple[DeadLetter, str]]
    next_token: str


class Warmth(NamedTuple):
    """How much of the record index is in run files of assigners: shards that they hold, of them loaded and to
    be loaded, and entries of how many. ``table_shards``: of the whole table; 0: a former coordinator that
    does not say.
    """

    shards: int
    loaded: int
    left: int
    entries: int
    entries_max: int
    table_shards: int = 0


class AdminClient:
    """Calls to one table's coordinator. Every call raises RpcError, or `NobodyAnswersError` (a CliError) when
    no coordinator answers, or CliError when the two sides do not agree on TLS. Documents are those of
    `--json`.
    """

    def __init__(self, config: TableConfigFile, security: ClientSecurity | None = None) -> None:
        """`config` holds a real address (`resolve_addresses`). Without `security` the configuration's
        is used.
        """
        self._table = config.table.name
        self._address = config.services.coordinator
        self._file = config.file
        self._state = config.state.path
        self._channel = open_channel(
            self._address,
            message_bytes_max=config.limits.rpc_message_bytes,
            security=security or client_security(config),
        )
        self._stub = admin_pb2_grpc.AdminStub(self._channel)

    def served(self) -> Served:
        """Which table the coordinator serves, for `check_served`."""
        return served_of(self._call(self._stub.Serves, pb.ServesRequest(table=self._table)))

    def status(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The document of `tidemark status`."""
        answer = self._call(self._stub.Status, pb.StatusRequest(table=self._table), timeout_s)
        return dict(json.loads(answer.json))

    def typed_status(self, timeout_s: float | None = None) -> tuple[Status, dict[str, Any]]:
        """The status as types, and the document that the coordinator sends beside them."""
        answer = self._call(self._stub.Status, pb.StatusRequest(table=self._table), timeout_s)
        return status_of(answer.status), dict(json.loads(answer.json))

    def flush(self, timeout_ms: int) -> dict[str, Any]:
        """Waits until everything that was in the input topics at the time of the call is committed. Returns
        the epoch and the instant that committed it.
        """
        request = pb.FlushRequest(table=self._table, timeout_ms=timeout_ms)
        answer = self._call(self._stub.Flush, request, timeout_ms / 1_000 + _MARGIN_S)
        return {"epoch": answer.epoch, "instant": answer.instant or None}

    def lookup(self, keys: Sequence[str], partition: str | None = None) -> list[dict[str, Any]]:
        """The location of each key, in the order of the keys. ``partition``: the path of their partition,
        with a partitioned record index; then ``shard`` is None, as each partition has shards of its own.
        """
        locations: list[dict[str, Any]] = []
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            part = keys[first : first + _KEYS_AT_ONCE]
            request = pb.LookupRequest(table=self._table, keys=part, partition=partition)
            found = self._call(self._stub.Lookup, request).found
            locations += [_location(message, has_shard=partition is None) for message in found]
        return locations

    def lookup_stream(
        self, batches: Iterable[pa.StringArray], partition: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The locations of the keys of each batch, as columns (`key_stream.COLUMNS`), in the order of the
        batches, which have at most `key_stream.BATCH_KEYS` keys. ``partition``: as in `lookup`. Raises
        CliError also for what the coordinator says of a batch.
        """
        from tidemark.console.key_stream import KeyStream

        stream = KeyStream(self._stub.LookupStream, self._table, SystemClock().sleep, partition)
        return stream.answers(batches)

    def lookup_values(self, column: str, values: Sequence[str | None], token: str, limit: int) -> ValuePage:
        """A page of the rows that have one of the values in an indexed column; None, the last one: none."""
        from tidemark.console.value_page import asked_page, value_request

        request = value_request(self._table, column, values, token, limit)
        return asked_page(lambda asked: self._call(self._stub.LookupValue, asked, _VALUES_S), request)

    def warm_index(self, start: bool) -> Warmth:
        """Has the assigners load the record index into their run files (``start``); how far they are."""
        answer = self._call(self._stub.WarmIndex, pb.WarmIndexRequest(table=self._table, start=start))
        numbers = answer.shards, answer.loaded, answer.left, answer.entries, answer.entries_max
        return Warmth(*numbers, answer.table_shards)

    def epochs(self, limit: int) -> list[dict[str, Any]]:
        """Documents of the newest epochs, newest first."""
        answer = self._call(self._stub.ListEpochs, pb.ListEpochsRequest(table=self._table, limit=limit))
        return [json.loads(text) for text in answer.json]

    def epoch(self, number: int) -> dict[str, Any]:
        """The document of one epoch."""
        answer = self._call(self._stub.ShowEpoch, pb.ShowEpochRequest(table=self._table, epoch=number))
        return dict(json.loads(answer.json))

    def typed_epochs(self, limit: int) -> tuple[list[EpochRecord], list[dict[str, Any]]]:
        """The newest epochs as types, newest first, and the documents that come beside them."""
        answer = self._call(self._stub.ListEpochs, pb.ListEpochsRequest(table=self._table, limit=limit))
        return [epoch_of(message) for message in answer.epochs], [json.loads(text) for text in answer.json]

    def typed_epoch(self, number: int) -> tuple[EpochRecord, dict[str, Any]]:
        """One epoch as a type, and the document that comes beside it."""
        answer = self._call(self._stub.ShowEpoch, pb.ShowEpochRequest(table=self._table, epoch=number))
        return epoch_of(answer.epoch), dict(json.loads(answer.json))

    def retry(self, number: int) -> int:
        """Lets the coordinator try the epoch again that it gave up; returns the number of the next
        attempt.
        """
        request = pb.RetryEpochRequest(table=self._table, epoch=number)
        return int(self._call(self._stub.RetryEpoch, request, _RETRY_S).attempt)

    def accept_topic(self, topic: str, keep_positions: bool) -> dict[str, Any]:
        """Accepts the input topic as it is now, read from its start or, with `keep_positions`, from the
        positions that were reached.
        """
        request = pb.AcceptTopicRequest(table=self._table, topic=topic, keep_positions=keep_positions)
        answer = self._call(self._stub.AcceptTopic, request)
        return {
            "topic": topic,
            "id": answer.id,
            "partitions": answer.partitions,
            "from_start": answer.from_start,
        }

    def skip_input(self, topic: str, partition: int, offset: int) -> dict[str, Any]:
        """Moves a partition past the offset at which reading stopped. Returns the skipped offsets, `first`
        and `last` included, when the ledger has them.
        """
        request = pb.SkipInputRequest(table=self._table, topic=topic, partition=partition, offset=offset)
        done = self._call(self._stub.SkipInput, request, _SKIP_S)
        return {"topic": topic, "partition": partition, "first": done.first, "last": done.last}

    def pause(self, reason: str) -> None:
        """Stops tagging until `resume`."""
        self._call(self._stub.Pause, pb.PauseRequest(table=self._table, reason=reason))

    def resume(self) -> None:
        """Continues tagging after `pause`."""
        self._call(self._stub.Resume, pb.ResumeRequest(table=self._table))

    def services(self) -> tuple[OwnServices, dict[str, Any]]:
        """Tidemark's own table services as types, and the document of `tidemark services list`."""
        answer = self._call(self._stub.ListServices, pb.ListServicesRequest(table=self._table))
        return services_of(answer.services), dict(json.loads(answer.json))

    def run_service(self, kind: str) -> list[dict[str, Any]]:
        """Has a service planned now. Returns the number of the action for each kind that is meant, or 0 and
        why there is nothing to do.
        """
        request = pb.RunServiceRequest(table=self._table, kind=kind)
        answer = self._call(self._stub.RunService, request, _RUN_S)
        return [
            {"kind": run.kind, "number": run.number, "nothing": run.nothing or None, "ended": None}
            for run in answer.runs
        ]

    def pause_services(self, reason: str) -> None:
        """Stops the planning of table services until `resume_services`."""
        self._call(self._stub.PauseServices, pb.PauseServicesRequest(table=self._table, reason=reason))

    def resume_services(self) -> None:
        """Plans table services again."""
        self._call(self._stub.ResumeServices, pb.ResumeServicesRequest(table=self._table))

    def dead_letters(self, wanted: LetterFilter, limit: int) -> LetterPage:
        """The newest `limit` dead letters that match, and the counts of all, by as many calls as that takes.
        Raises CliError when the coordinator does not know `wanted.since_ms`."""

        def page(below: int | None) -> LetterPage:
            request = pb.ListDeadLettersRequest(
                table=self._table,
                filter=filter_message(wanted),
                page_size=min(limit, PAGE_MAX),
                page_token="" if below is None else str(below),
            )
            answer = self._call(self._stub.ListDeadLetters, request, _LETTERS_S)
            if wanted.since_ms is not None and not answer.HasField("since_ms"):
                raise CliError("the coordinator does not know --since: ask without it, or start this version")
            older = int(answer.next_page_token) if answer.next_page_token else None
            by_reason = {reason_named(text): count for text, count in sorted(answer.by_reason.items())}
            dead_letters = [letter_of(letter) for letter in answer.letters]
            retention = LetterRetention(answer.kept, answer.expiring, answer.deleted)
            return LetterPage(answer.count, by_reason, dead_letters, older, retention)

        return all_letters(page, limit)

    def dead_letter(self, letter_id: int) -> WholeLetter:
        """One dead letter with its key, value and headers. Raises RpcError NOT_FOUND when there is none."""
        request = pb.ShowDeadLetterRequest(table=self._table, id=letter_id)
        answer = self._call(self._stub.ShowDeadLetter, request, _LETTERS_S)
        headers = tuple((header.name, header.value) for header in answer.headers)
        key, value = _optional(answer, "key"), _optional(answer, "value")
        return WholeLetter(letter_of(answer.letter), key, value, headers)

    def replay(
        self, wanted: LetterFilter, dry_run: bool, again: bool, replays_max: int, page_token: str
    ) -> ReplayedPage:
        """Replays one page. Call again with the page's `next_token` until that is empty."""
        request = pb.ReplayDeadLettersRequest(
            table=self._table,
            filter=filter_message(wanted),
            dry_run=dry_run,
            again=again,
            replays_max=replays_max,
            page_token=page_token,
        )
        answer = self._call(self._stub.ReplayDeadLetters, request, _LETTERS_S)
        return ReplayedPage(
            answer.replayed,
            [letter_of(letter) for letter in answer.chosen],
            [(letter_of(skipped.letter), skipped.why) for skipped in answer.skipped],
            answer.next_page_token,
        )

    def close(self) -> None:
        """Releases the channel."""
        self._channel.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        try:
            return call(method, request, timeout_s)
        except RpcError as error:
            if error.status is grpc.StatusCode.UNAVAILABLE and _tls_failed(str(error)):
                raise CliError(
                    f"{self._address} answers, but the two sides do not agree on TLS: compare "
                    f"security.tls of {self._file} with the coordinator's (ca, server_name, client_auth) "
                    f"({error.details})"
                ) from error
            if error.status is grpc.StatusCode.UNAVAILABLE and _nobody_there(str(error)):
                hint = "" if "refused" in str(error) else " If it is: do both sides agree on security.tls?"
                raise NobodyAnswersError(
                    f"no coordinator answers at {self._address} (services.coordinator in {self._file}): is "
                    f"`tidemark run -c {self._file}` running{why_silent(self._state)}?{hint}"
                ) from error
            raise


def connect(config_file: str) -> AdminClient:
    """A client of the coordinator of the configuration file's table.

    Raises ConfigError, RpcError, and CliError when no coordinator answers, or when the one that answers
    serves another table of the same name, or the table from which this one was copied.
    """
    config = resolve_addresses(load_config(config_file))
    client = AdminClient(config)
    try:
        check_served(config, client.served())
    except BaseException:
        client.close()
        raise
    return client


def _tls_failed(text: str) -> bool:
    return any(sign in text for sign in ("handshake", "SSL", "Ssl", "certificate", "Peer name"))


def _nobody_there(text: str) -> bool:
    return any(sign in text for sign in ("failed to connect", "Connection refused", "Socket closed"))


def _optional(message: Any, name: str) -> bytes | None:
    return getattr(message, name) if message.HasField(name) else None


def _location(message: Any, has_shard: bool) -> dict[str, Any]:
    has_row = message.tier != "none" and bool(message.file_id)
    return {
        "key": message.key,
        "tier": message.tier,
        "partition_path": message.partition_path if has_row else None,
        "file_id": message.file_id or None,
        "shard": message.shard if has_shard else None,
        "ordering": message.ordering if message.has_ordering else None,
        "ordering_exact": message.ordering_exact if message.has_ordering else None,
    }
