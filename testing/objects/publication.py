"""The publication port as a store without folders and renames has it.

* What counts is uploaded, and published later: `prepare` is an upload that nobody sees, `publish` completes
  it if its name is free, `revoke` aborts it. Which came first is the store's own answer, and final: an upload
  that was published or aborted is used up, also when its file is deleted.
* Who writes an epoch's files only uploads. One that wakes up an hour later makes one more upload, which no
  decision names, so nobody publishes it. There is no fence for it, and none is needed.
* What the coordinator itself publishes rests on two objects: the term's, which changes upwards only, and
  where a lease is given the lock. That the store compares them *at the moment of the effect* stands for what
  a real one has for it: requests are signed for a shorter time than the lease lasts.
* The markers of an attempt, which are there for other engines, are put while its object names it. A real
  store's coordinator would put them for its writers.
* A voided attempt whose last upload may still be on its way to the name is not settled at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from testing.objects.store import NoSuchUploadError, ObjectStore, PreconditionFailedError, Upload, Where
from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FencedOutError,
    FileMissingError,
    LockHeldError,
    LockLostError,
    TimelineConflictError,
)
from tidemark.hudi_format.ports import Clock, IdSource
from tidemark.hudi_format.publication.table_lock import LOCK_PATH, LockHolder, TableLock
from tidemark.hudi_format.publication.tickets import (
    NO_TERM,
    Fate,
    Lease,
    NotBefore,
    Prepared,
    Settled,
    TermId,
    Ticket,
)
from tidemark.hudi_format.storage.base import FileContent, Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT

TERM: Final = f"{ROOT}/term"
ATTEMPTS: Final = f"{ROOT}/attempts"
SETTLES_AFTER_MS: Final = 1_500
_UNSETTLED_OF: Final = 3
"""Of so many attempts one cannot be settled at once."""


class ObjectAttempt:
    """`Attempt`."""

    def __init__(self, store: ObjectStore, token: str) -> None:
        self._store, self._token = store, token

    @property
    def storage(self) -> Storage:
        return self._store

    def prepare(self, path: str, data: FileContent) -> Ticket:
        # Only so that nobody works in vain: between this look and the upload anything may happen.
        if _read(self._store, _attempt_path(self._token)) != self._token.encode():
            raise FencedOutError(f"{path}: the attempt {self._token} is over")
        return _uploaded(self._store, path, data, self._token)

    def put_pending(self, path: str, data: FileContent) -> None:
        with contextlib.suppress(AlreadyExistsError), _fenced(path):
            self._store.create(path, data, {_attempt_path(self._token): self._token.encode()})


class ObjectServiceFiles:
    """`ServiceFiles`: uploads that carry the action's number."""

    def __init__(self, store: ObjectStore, token: str) -> None:
        self._store, self._token = store, token

    @property
    def storage(self) -> Storage:
        return self._store

    def prepare(self, path: str, data: FileContent, note: bytes = b"") -> Ticket:
        # As with attempts, the look is only so that nobody works in vain.
        if _read(self._store, _attempt_path(self._token)) != self._token.encode():
            raise FencedOutError(f"{path}: the action {self._token} is over")
        first = self.prepared(path)
        if first is not None:
            if first.ticket.sha256 != _digest(bytes(data)):
                raise AlreadyExistsError(f"{path!r} was prepared before, with another content")
            return first.ticket
        return _ticket(self._store.upload(path, data, self._token, note), path, bytes(data))

    def grow(self, path: str) -> ObjectGrowingFile:
        if _read(self._store, _attempt_path(self._token)) != self._token.encode():
            raise FencedOutError(f"{path}: the action {self._token} is over")
        return ObjectGrowingFile(self, path)

    def prepared(self, path: str) -> Prepared | None:
        of_action = self._token.rsplit("-", 2)[0] + "-"
        for upload_id, upload in self._store.uploads().items():
            if upload.path == path and upload.tag.startswith(of_action):
                return Prepared(_ticket(upload_id, path, upload.data), upload.note)
        return None


class ObjectGrowingFile:
    """`GrowingFile`: the parts of an upload."""

    def __init__(self, files: ObjectServiceFiles, path: str) -> None:
        self._files, self._path, self._parts = files, path, bytearray()

    def write(self, data: FileContent) -> None:
        self._parts += data

    def finish(self, note: bytes = b"") -> Ticket:
        return self._files.prepare(self._path, bytes(self._parts), note)

    def discard(self) -> None:
        self._parts.clear()


class ObjectTerm:
    """`Term`."""

    def __init__(self, store: ObjectStore, clock: Clock, ids: IdSource, term: TermId) -> None:
        self._store, self._clock, self._term = store, clock, term
        self._place = ObjectLockPlace(store, ids, term)
        self._lock = TableLock(self._place, clock, term, join_path(store.base_uri, LOCK_PATH))
        self._many: list[Ticket] = []
        self._settled_at_ms: dict[tuple[int, int], int] = {}

    @property
    def storage(self) -> Storage:
        return self._store

    @property
    def id(self) -> TermId:
        return self._term

    @property
    def lock(self) -> TableLock:
        return self._lock

    @property
    def _here(self) -> Where:
        return {TERM: _term_content(self._term)}

    def open_attempt(self, epoch: int, attempt: int) -> str:
        token = f"{epoch}-{attempt}-{self._term.offset}-{self._term.ledger}"
        with _fenced(token):
            self._store.replace(_attempt_path(token), token.encode(), self._here)
        return token

    def close_attempt(self, epoch: int, attempt: int, tickets: Sequence[Ticket] = ()) -> Settled | NotBefore:
        with _fenced(f"{epoch}-{attempt}"):
            self._store.delete(f"{ATTEMPTS}/{epoch}-{attempt}", self._here)
        for upload_id, upload in self._store.uploads().items():
            if upload.tag.startswith(f"{epoch}-{attempt}-"):
                self._store.abort(upload_id)
        self.revoke(tickets)
        now_ms, known = self._clock.now_ms(), (epoch, attempt)
        if (epoch + attempt) % _UNSETTLED_OF == 0:
            settled_at_ms = self._settled_at_ms.setdefault(known, now_ms + SETTLES_AFTER_MS)
            if now_ms < settled_at_ms:
                return NotBefore(settled_at_ms)
        return Settled()

    def open_service(self, service: int) -> str:
        token = f"service-{service}-{self._term.offset}-{self._term.ledger}"
        with _fenced(token):
            self._store.replace(_attempt_path(token), token.encode(), self._here)
        return token

    def close_service(self, service: int, tickets: Sequence[Ticket] = ()) -> Settled:
        with _fenced(f"service-{service}"):
            self._store.delete(f"{ATTEMPTS}/service-{service}", self._here)
        for upload_id in self._of_service(service):
            self._store.abort(upload_id)
        self.revoke(tickets)
        return Settled()

    def adopt(self, service: int, paths: Sequence[str]) -> list[Ticket]:
        found: dict[str, Ticket] = {}
        for upload_id, upload in self._of_service(service).items():
            if upload.path in paths:
                found.setdefault(upload.path, _ticket(upload_id, upload.path, upload.data))
        return [found[path] for path in paths if path in found]

    def _of_service(self, service: int) -> dict[str, Upload]:
        uploads = self._store.uploads().items()
        return {handle: upload for handle, upload in uploads if upload.tag.startswith(f"service-{service}-")}

    def prepare(self, path: str, data: FileContent, *, name_decides: bool = False) -> Ticket:
        if _read(self._store, TERM) != _term_content(self._term):
            raise FencedOutError(f"{path}: term {self._term.offset} is over")
        return _uploaded(self._store, path, data, _term_tag(self._term), name_decides)

    def prepare_many(self, files: Sequence[tuple[str, FileContent]]) -> list[Ticket]:
        self.revoke(self._many)
        self._many = [self.prepare(path, data) for path, data in files]
        return self._many

    def publish(self, tickets: Sequence[Ticket], lease: Lease | None = None) -> None:
        for ticket in tickets:
            if not ticket.is_visible:
                self._publish(ticket, lease)

    def _publish(self, ticket: Ticket, lease: Lease | None) -> None:
        # What writers prepared is published because a decision names it: nothing else has to hold.
        where = dict(self._here) if ticket.handle.endswith(_term_tag(self._term)) else {}
        if lease is not None and where:
            where[LOCK_PATH] = _lock_content(self._term, lease.nonce)
        try:
            with _fenced(ticket.path):
                self._store.publish(ticket.path, _upload_id(ticket), where)
            return
        except NoSuchUploadError as error:
            found = _read(self._store, ticket.path)
            if found is None:
                raise FencedOutError(f"{ticket.path}: its ticket was revoked or used up") from error
        except AlreadyExistsError:
            found = self._store.read(ticket.path)
        if not ticket.name_decides and _digest(found) != ticket.sha256:
            raise TimelineConflictError(f"{ticket.path} exists with another content: another writer made it")
        self._store.abort(_upload_id(ticket))

    def revoke(self, tickets: Sequence[Ticket]) -> Mapping[Ticket, Fate]:
        return {ticket: self._revoke(ticket) for ticket in tickets}

    def _revoke(self, ticket: Ticket) -> Fate:
        if not ticket.is_visible and self._store.abort(_upload_id(ticket)):
            return Fate.REVOKED
        found = _read(self._store, ticket.path)
        there = found is not None and (ticket.is_visible or _digest(found) == ticket.sha256)
        return Fate.PUBLISHED if there else Fate.REVOKED

    def put_pending(self, path: str, data: FileContent) -> None:
        with contextlib.suppress(AlreadyExistsError), _fenced(path):
            self._store.create(path, data, self._here)

    def keep_pending(self, path: str) -> None:
        self._store.touch(path, create=False)

    def now_ms(self) -> int:
        return _now_ms(self._store, f"{ROOT}/now-{self._term.offset}", self._here)

    def written_ms(self, path: str) -> int | None:
        info = self._store.stat(path)
        return None if info is None else info.mtime_ms

    def replace(self, path: str, data: FileContent) -> None:
        with _fenced(path):
            self._store.replace(path, data, self._here)

    def remove_older(self, keep: Collection[int] = ()) -> int:
        older = [
            upload_id
            for upload_id, upload in self._store.uploads().items()
            if upload.tag.startswith("term-") and upload.tag != _term_tag(self._term)
        ]
        return sum(map(self._store.abort, older))

    def remove_dead_commands(self, is_over: Callable[[], bool]) -> int:
        return 0  # commands work on a file system alone


class ObjectPublication:
    """`Publication`."""

    def __init__(self, store: ObjectStore, clock: Clock, ids: IdSource) -> None:
        self._store, self._clock, self._ids = store, clock, ids

    @property
    def storage(self) -> Storage:
        return self._store

    def open_term(self, term: TermId) -> ObjectTerm:
        while True:
            found = _read(self._store, TERM)
            former = _parsed_term(found)
            if former == term:
                raise AlreadyExistsError(f"term {term.offset} was begun before under {self._store.base_uri}")
            if former is not None and former.is_after(term):
                raise FencedOutError(f"term {term.offset} is over: term {former.offset} has begun")
            try:
                self._change_term(found, _term_content(term))
            except (AlreadyExistsError, PreconditionFailedError):
                continue
            return ObjectTerm(self._store, self._clock, self._ids, term)

    def _change_term(self, found: bytes | None, content: bytes) -> None:
        if found is None:
            self._store.create(TERM, content)
        else:
            self._store.replace(TERM, content, {TERM: found})

    def end_all_terms(self) -> None:
        holder = read_object_lock(self._store)
        if holder is not None and holder.is_foreign:
            raise LockHeldError(f"{self._store.base_uri}/{LOCK_PATH} is held by another writer")
        self._store.replace(TERM, _term_content(TermId(NO_TERM.offset, self._ids.uuid())))
        if holder is not None:
            found = _lock_content(TermId(holder.term or 0, holder.ledger), holder.nonce or "")
            with contextlib.suppress(PreconditionFailedError):  # it was given back before its term ended
                self._store.replace(LOCK_PATH, _lock_content(NO_TERM, self._ids.uuid()), {LOCK_PATH: found})

    @contextlib.contextmanager
    def lock_of_no_term(self, ledger: str) -> Iterator[TableLock]:
        term = TermId(NO_TERM.offset, ledger)
        place = ObjectLockPlace(self._store, self._ids, term, in_term=False)
        yield TableLock(place, self._clock, term, join_path(self._store.base_uri, LOCK_PATH))

    def now_ms(self) -> int:
        return _now_ms(self._store, f"{ROOT}/now-{self._ids.uuid()}")

    def written_ms(self, path: str) -> int | None:
        info = self._store.stat(path)
        return None if info is None else info.mtime_ms


class ObjectLockPlace:
    """`LockPlace`: one object, which is made if it is absent, and deleted by whom it names."""

    def __init__(self, store: ObjectStore, ids: IdSource, term: TermId, in_term: bool = True) -> None:
        self._store, self._ids, self._term = store, ids, term
        self._where: Where = {TERM: _term_content(term)} if in_term else {}
        self.nonce: str | None = None

    def holder(self) -> LockHolder | None:
        return read_object_lock(self._store)

    def put(self) -> bool:
        if self.nonce is None:
            self.nonce = self._ids.uuid()
        try:
            with _fenced(LOCK_PATH):
                self._store.create(LOCK_PATH, _lock_content(self._term, self.nonce), self._where)
        except AlreadyExistsError:
            return False
        return True

    def replace(self, holder: LockHolder) -> bool:
        found = _lock_content(TermId(holder.term or 0, holder.ledger), holder.nonce or "")
        self.nonce = self._ids.uuid()
        content = _lock_content(self._term, self.nonce)
        try:
            self._store.replace(LOCK_PATH, content, {**self._where, LOCK_PATH: found})
        except PreconditionFailedError as error:
            if error.path == LOCK_PATH:
                return False
            raise FencedOutError(f"{LOCK_PATH}: {error}") from error
        return True

    def give_back(self) -> None:
        content = _lock_content(self._term, self.nonce or "")
        try:
            self._store.delete(LOCK_PATH, {**self._where, LOCK_PATH: content})
        except PreconditionFailedError as error:
            raise LockLostError(f"{LOCK_PATH} is gone, or term {self._term.offset} is over") from error
        # No content comes twice: who slept must not take a later lock for this one.
        self.nonce = None


def read_object_lock(store: Storage) -> LockHolder | None:
    """Who holds the lock; None when it is free."""
    content, info = _read(store, LOCK_PATH), store.stat(LOCK_PATH)
    if content is None or info is None:
        return None
    try:
        owner: Any = json.loads(content)["tidemark"]
        return LockHolder(int(owner["term"]), str(owner["nonce"]), info.mtime_ms, str(owner["ledger"]))
    except (ValueError, LookupError, TypeError):
        return LockHolder(None, None, info.mtime_ms)


@contextlib.contextmanager
def _fenced(what: str) -> Iterator[None]:
    """What a write rested on is not so any more."""
    try:
        yield
    except PreconditionFailedError as error:
        if error.path == LOCK_PATH:
            raise LockLostError(f"{what}: {error}") from error
        raise FencedOutError(f"{what}: {error}") from error


def _uploaded(
    store: ObjectStore, path: str, data: FileContent, tag: str, name_decides: bool = False
) -> Ticket:
    upload_id = store.upload(path, data, tag)
    return Ticket(path, len(data), _digest(bytes(data)), f"{upload_id} {tag}", name_decides)


def _ticket(upload_id: str, path: str, data: bytes) -> Ticket:
    return Ticket(path, len(data), _digest(data), upload_id)


def _upload_id(ticket: Ticket) -> str:
    return ticket.handle.partition(" ")[0]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _attempt_path(token: str) -> str:
    epoch, attempt = token.split("-")[:2]
    return f"{ATTEMPTS}/{epoch}-{attempt}"


def _term_tag(term: TermId) -> str:
    return f"term-{term.offset}-{term.ledger}"


def _term_content(term: TermId) -> bytes:
    return json.dumps({"ledger": term.ledger, "term": term.offset}).encode()


def _parsed_term(content: bytes | None) -> TermId | None:
    if content is None:
        return None
    parsed = json.loads(content)
    return TermId(parsed["term"], parsed["ledger"])


def _lock_content(term: TermId, nonce: str) -> bytes:
    owner = {"term": term.offset, "nonce": nonce, "ledger": term.ledger}
    return json.dumps({"tidemark": owner}).encode()


def _read(store: Storage, path: str) -> bytes | None:
    try:
        return bytes(store.read(path))
    except FileMissingError:
        return None


def _now_ms(store: ObjectStore, path: str, where: Where | None = None) -> int:
    with _fenced(path):
        store.replace(path, b"", where)
    written = store.stat(path)
    store.delete(path)
    assert written is not None
    return written.mtime_ms
