"""The folders by which a file system fences terms and attempts: staging folders, and the term's lock in them.

::

    .hoodie/.aux/tidemark/
        terms/<term>/                 this term's own folder: completed files and the lock pass through it
            attempt-<epoch>-<attempt>/    writers of the attempt publish out of it
            voided-<epoch>-<attempt>/     the same folder when the attempt is closed
            laid-<number>/                many files that are published at once (`laid_out`)
            service-<number>/             tasks of the service action prepare files in it (`staged`)
            voided-<number>/              the same folder when the action is closed
            now                           its time is the storage's at the last look for dead commands
        terms/fresh-<term>-<nonce>/   a new folder, before it is renamed into the term's folder
        ended/<term>/                 folders of terms that a successor ended
        command-<nonce>/              a command that works beside a coordinator (`beside`), or asks for the
                                      storage's time
        ended/command-<nonce>/        the same folder of a command that was silent for too long

A successor renames the folders of all older terms away before it does anything else. Folders inside a term's
folder are made by a rename only, which fails when the term's folder is gone. So a coordinator that was
suspended, and goes on after its term, cannot open an attempt for writers (ARCHITECTURE.md, "Coordinator
terms"). A service action goes on after its term: the successor renames its folder out of `ended/<term>` into
its own term's, so what is prepared stays, and tasks that know the former path are fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tidemark.hudi_format.errors import AlreadyExistsError, FencedOutError, FileMissingError
from tidemark.hudi_format.storage.base import FileInfo, FolderStorage, join_path
from tidemark.hudi_format.storage.documents import ROOT

TERMS: Final = f"{ROOT}/terms"
ENDED: Final = f"{ROOT}/ended"
COMMAND_DEAD_MS: Final = 600_000
"""A command gives a sign of life more often than that."""
_COMMAND: Final = "command-"


def term_dir(term: int) -> str:
    """The path of the folder of a coordinator term."""
    return join_path(TERMS, str(term))


def attempt_dir(term: int, epoch: int, attempt: int) -> str:
    """The path of the staging folder of an attempt under a term."""
    return join_path(term_dir(term), f"attempt-{epoch}-{attempt}")


def end_older_terms(storage: FolderStorage, term: int) -> None:
    """Renames the folders of all older terms away. After that none of their writers publishes anything."""
    storage.make_dir(ENDED)
    for info in storage.list(TERMS):
        if info.is_dir and info.name.isdigit() and int(info.name) < term:
            _rename_away(storage, info.path, join_path(ENDED, info.name))
    storage.sync_dir(TERMS)


def open_term(storage: FolderStorage, term: int) -> str:
    """Makes the term's own folder and returns its path. Raises `AlreadyExistsError` if the term has one."""
    path = term_dir(term)
    storage.make_dir(path, exclusive=True)
    storage.sync_dir(TERMS)
    return path


def remove_ended(storage: FolderStorage, term: int, keep: Collection[int] = ()) -> int:
    """Deletes the folders that terms before ``term`` left behind, except those of the service actions
    ``keep``; returns the number of files in them.
    """
    fresh = [info for info in storage.list(TERMS) if info.name.startswith("fresh-")]
    older = [info.path for info in fresh if int(info.name.split("-")[1]) < term]
    kept = {_service_name(service) for service in keep}
    for ended in storage.list(ENDED):
        inside = storage.list(ended.path)
        if kept.isdisjoint(info.name for info in inside):
            older.append(ended.path)
        else:
            older += [info.path for info in inside if info.is_dir and info.name not in kept]
    return sum(map(storage.delete_tree, older))


def command_dir(command: str) -> str:
    """The path of the folder of a command, by its nonce."""
    return join_path(ROOT, f"command-{command}")


def command_beat(command: str) -> str:
    """The path of the file whose time a command that is alive sets again and again."""
    return join_path(command_dir(command), "beat")


def end_command(storage: FolderStorage, command: str) -> None:
    """Renames the folder of a command away: after that it makes no file. Repeatable."""
    storage.make_dir(ENDED)
    _rename_away(storage, command_dir(command), join_path(ENDED, f"command-{command}"))
    storage.sync_dir(ROOT)


def has_commands(storage: FolderStorage) -> bool:
    """Whether any command is at work, or left something."""
    return any(info.name.startswith(_COMMAND) for folder in (ROOT, ENDED) for info in storage.list(folder))


def remove_dead_commands(
    storage: FolderStorage, now_ms: int, is_over: Callable[[], bool] = lambda: False
) -> int:
    """Deletes what commands left that gave no sign of life for `COMMAND_DEAD_MS`, and what is left of those
    that somebody ended; returns the number of files. ``now_ms``: by the storage's clock, or by ours if it is
    earlier. ``is_over`` is asked after each file: what is left then is for the next call.

    What cannot be ended or deleted keeps no other: the first OSError is raised behind all of them.

    Each is ended first: one that was only suspended, and goes on now, puts no folder in place of which a part
    is deleted already.
    """
    refused: list[OSError] = []
    for info in storage.list(ROOT):
        if info.is_dir and info.name.startswith(_COMMAND):
            try:
                _end_if_dead(storage, info, now_ms)
            except OSError as error:
                refused.append(error)
    count = 0
    for ended in [info.path for info in storage.list(ENDED) if info.name.startswith(_COMMAND)]:
        try:
            for file in storage.walk(ended):
                storage.delete(file.path)
                count += 1
                if is_over():
                    return count
            storage.delete_tree(ended)
        except OSError as error:
            refused.append(error)
    if refused:
        raise refused[0]
    return count


def _end_if_dead(storage: FolderStorage, folder: FileInfo, now_ms: int) -> None:
    command = folder.name.removeprefix(_COMMAND)
    beaten = storage.stat(command_beat(command)) or folder
    if now_ms - beaten.mtime_ms > COMMAND_DEAD_MS:
        end_command(storage, command)


def open_attempt(storage: FolderStorage, term: int, epoch: int, attempt: int, nonce: str) -> str:
    """Makes the attempt's staging folder unless it is there, and returns its path. ``nonce``: unique to the
    call. Raises FencedOutError when the term is over.
    """
    path = attempt_dir(term, epoch, attempt)
    if not storage.exists(path):
        _make_in_term(storage, term, path, nonce)
    return path


def open_laid_out(storage: FolderStorage, term: int, name: str, nonce: str) -> str:
    """Makes a folder of this name in the term's, and returns its path. ``nonce``: unique to the call. Raises
    FencedOutError when the term is over.
    """
    path = join_path(term_dir(term), name)
    _make_in_term(storage, term, path, nonce)
    return path


def _make_in_term(storage: FolderStorage, term: int, path: str, nonce: str) -> None:
    fresh = join_path(TERMS, f"fresh-{term}-{nonce}")
    storage.make_dir(fresh, exclusive=True)
    try:
        storage.rename(fresh, path)
    except FileMissingError as error:
        storage.delete_tree(fresh)
        raise FencedOutError(f"{term_dir(term)} is gone: a newer coordinator ended term {term}") from error
    storage.sync_dir(term_dir(term))


def close_attempt(storage: FolderStorage, term: int, epoch: int, attempt: int) -> None:
    """Renames the attempt's folder away, then deletes it. Does nothing for an attempt without a folder."""
    voided = join_path(term_dir(term), f"voided-{epoch}-{attempt}")
    _rename_away(storage, attempt_dir(term, epoch, attempt), voided)
    storage.sync_dir(term_dir(term))
    storage.delete_tree(voided)


def open_service(storage: FolderStorage, term: int, service: int, nonce: str) -> str:
    """Makes the action's folder in the term's unless it is there, or takes it over from an ended term.
    Returns its path. ``nonce``: unique to the call. Raises FencedOutError when the term is over.
    """
    path = adopt_service(storage, term, service)
    if not storage.exists(path):
        _make_in_term(storage, term, path, nonce)
    return path


def adopt_service(storage: FolderStorage, term: int, service: int) -> str:
    """Takes the action's folder over from the newest ended term that left one. Returns its path in this term.
    Raises FencedOutError when the term is over.
    """
    path = join_path(term_dir(term), _service_name(service))
    if storage.exists(path):
        return path
    for ended in _ended_folders(storage, service):
        try:
            storage.rename(ended, path)
        except FileMissingError:
            if not storage.exists(term_dir(term)):
                raise FencedOutError(f"{term_dir(term)} is gone: a newer coordinator ended it") from None
            continue
        break
    return path


def close_service(storage: FolderStorage, term: int, service: int) -> None:
    """Renames the action's folder away, then deletes it, and what ended terms left of it."""
    voided = join_path(term_dir(term), f"voided-{service}")
    _rename_away(storage, join_path(term_dir(term), _service_name(service)), voided)
    storage.sync_dir(term_dir(term))
    for path in (voided, *_ended_folders(storage, service)):
        storage.delete_tree(path)


def _ended_folders(storage: FolderStorage, service: int) -> list[str]:
    """The folders of the action in ended terms, the newest term's first."""
    terms = sorted((info.name for info in storage.list(ENDED) if info.name.isdigit()), key=int, reverse=True)
    paths = (join_path(ENDED, term, _service_name(service)) for term in terms)
    return [path for path in paths if storage.exists(path)]


def _service_name(service: int) -> str:
    return f"service-{service}"


def _rename_away(storage: FolderStorage, src: str, dst: str) -> None:
    try:
        storage.rename(src, dst)
    except FileMissingError:
        return
    except AlreadyExistsError:
        storage.delete_tree(src)
