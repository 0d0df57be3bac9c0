"""The admin service's calls about dead letters: checks requests, reads page tokens, builds answers."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.commit_coordinator.admin.messages import filter_of, letter_message, whole_letter
from tidemark.commit_coordinator.dead_letters.queries import DeadLetterQueries
from tidemark.commit_coordinator.dead_letters.replay import REPLAYS_MAX
from tidemark.commit_coordinator.refusals import BadRequestError, DeadLetterUnknownError
from tidemark.ledger_client.dead_letters import PAGE_MAX, LetterFilter

_LIST_DEFAULT: Final = 100
_REPLAY_DEFAULT: Final = 1_000
_IDS_MAX: Final = 10_000
_REPLAYS_LIMIT: Final = 1_000
_log = logging.getLogger("tidemark.admin")


class DeadLetterCalls:
    """The handlers, without gRPC."""

    def __init__(self, queries: DeadLetterQueries) -> None:
        self._queries = queries

    def list(self, request: pb.ListDeadLettersRequest) -> pb.ListDeadLettersResponse:
        """One page of letters. Raises BadRequestError, and what `DeadLetterQueries.page` raises."""
        size = min(request.page_size or _LIST_DEFAULT, PAGE_MAX)
        below = _numbers(request.page_token, 1)
        wanted = _wanted(request.filter)
        page = self._queries.page(wanted, size, below[0] if below else None)
        return pb.ListDeadLettersResponse(
            count=page.count,
            by_reason={str(reason): count for reason, count in page.by_reason.items()},
            letters=map(letter_message, page.letters),
            next_page_token="" if page.older is None else str(page.older),
            kept=page.retention.kept,
            expiring=page.retention.expiring,
            deleted=page.retention.deleted,
            since_ms=wanted.since_ms,
        )

    def show(self, request: pb.ShowDeadLetterRequest) -> pb.ShowDeadLetterResponse:
        """One letter with its record. Raises DeadLetterUnknownError."""
        message = self._queries.show(request.id) if request.id >= 0 else None
        if message is None:
            raise DeadLetterUnknownError(request.id)
        return whole_letter(message, request.content_bytes_max)

    def replay(self, request: pb.ReplayDeadLettersRequest) -> pb.ReplayDeadLettersResponse:
        """Replays one page. Raises BadRequestError, and what `DeadLetterQueries.replay` raises."""
        if request.replays_max > _REPLAYS_LIMIT:
            raise BadRequestError(
                "replays_max", f"replays_max is {request.replays_max}: at most {_REPLAYS_LIMIT}"
            )
        begun = _numbers(request.page_token, 2)
        replay = partial(
            self._queries.replay,
            _wanted(request.filter),
            min(request.page_size or _REPLAY_DEFAULT, PAGE_MAX),
            dry_run=request.dry_run,
            again=request.again,
            replays_max=request.replays_max or REPLAYS_MAX,
        )
        page = replay(after=begun[0], end=begun[1]) if begun else replay()
        if not request.dry_run:
            _log.info("%d dead letters were replayed, as asked", page.replayed)
        skipped = [
            pb.ReplayDeadLettersResponse.Skipped(letter=letter_message(letter), why=why)
            for letter, why in page.plan.skipped
        ]
        return pb.ReplayDeadLettersResponse(
            replayed=page.replayed,
            chosen=map(letter_message, page.plan.letters),
            skipped=skipped,
            next_page_token="" if page.newer is None else f"{page.newer}:{page.end}",
        )


def _wanted(message: pb.DeadLetterFilter) -> LetterFilter:
    if len(message.ids) > _IDS_MAX:
        raise BadRequestError("filter.ids", f"{len(message.ids)} ids are named: at most {_IDS_MAX} at once")
    return filter_of(message)


def _numbers(token: str, count: int) -> list[int]:
    """The numbers in one of our page tokens; empty for the first page. Raises BadRequestError."""
    if not token:
        return []
    parts = token.split(":")
    if len(parts) != count or not all(part.isascii() and part.isdigit() and len(part) < 20 for part in parts):
        raise BadRequestError("page_token", "page_token is not from an answer of this call")
    return [int(part) for part in parts]
