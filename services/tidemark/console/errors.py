"""From an exception to what the user sees: one line, and an exit code."""

from __future__ import annotations

from typing import Final

import grpc

from tidemark.errors import ErrorKind, TidemarkError, kind_of
from tidemark.ledger_client.errors import SupersededError
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.security.listening import AddressTakenError

DONE: Final = 0
FAILED: Final = 1
WRONG_USE: Final = 2
SUPERSEDED: Final = 3
STOPPED: Final = 4
ADDRESS_TAKEN: Final = 5


_REFUSED: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
    }
)
_ADMIN: Final = "/tidemark.admin."
_BY_KIND: Final = {ErrorKind.INVALID: WRONG_USE, ErrorKind.CORRUPT: STOPPED}


class CliError(StreamRuntimeError):
    """A command cannot do what was asked; the text says why and what to do."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def expected_error(error: BaseException) -> bool:
    """Whether the error is one that our packages raise on purpose: its text is made for the user."""
    return isinstance(error, TidemarkError | OSError)


def exit_code_of(error: BaseException) -> int:
    """2 for what will never succeed unchanged (configuration, table, arguments), 4 for stored data that
    contradicts itself or is gone, else 1: trying again may help.

    3: another coordinator took the table, which only its supervisor can judge. 5: a port that is taken,
    perhaps by a process that is just ending.
    """
    if isinstance(error, CliError):
        return error.exit_code
    if isinstance(error, SupersededError):
        return SUPERSEDED
    if isinstance(error, AddressTakenError):
        return ADDRESS_TAKEN
    if isinstance(error, RpcError):
        return WRONG_USE if error.status in _REFUSED else FAILED
    kind = kind_of(error)
    return FAILED if kind is None else _BY_KIND.get(kind, FAILED)


def message_of(error: BaseException, config_file: str | None) -> str:
    """The error as one line; where its text lacks what to do, that is added.

    The command was named by its user: which method of the admin service it called says them nothing.
    """
    said = str(error)
    if isinstance(error, RpcError) and error.method.startswith(_ADMIN):
        said = error.details
        if error.status is grpc.StatusCode.INTERNAL and error.info.request_id:
            said += f" (the coordinator's log has more, under request_id={error.info.request_id})"
    text = " ".join(said.split()) or type(error).__name__
    if isinstance(error, KafkaUnavailableError) and config_file:
        text += f" (kafka.bootstrap.servers in {config_file}: is that broker running, and reachable?)"
    if isinstance(error, PermissionError):
        text = f"{error.filename or 'a file'}: no permission to do this: make it writable for this user"
    elif isinstance(error, FileExistsError | NotADirectoryError) and error.filename:
        text = (
            f"{error.filename}: there has to be a folder, and a file is in the way (state.path, table.path)"
        )
    elif isinstance(error, OSError) and error.filename:
        text = f"{error.filename}: {error.strerror}"
    return text
