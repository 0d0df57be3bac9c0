"""Turns an exception into the line that the user sees, and into an exit code."""

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
    """Whether the error's text was written for the user: our packages raise it on purpose, or it is an
    OSError.
    """
    return isinstance(error, TidemarkError | OSError)


def exit_code_of(error: BaseException) -> int:
    """The exit code for an error:

    - 1: failed; trying again may help
    - 2: will fail again unless the configuration, the table or the arguments change
    - 3: another coordinator took the table; the supervisor decides what that means
    - 4: stored data contradicts itself or is gone
    - 5: the port is taken, perhaps by a process that is just ending
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
    """The error as one line. Where its text does not say what to do, that is added. Errors of the admin
    service come without the name of its method, which tells users nothing: they know the command that they
    called.
    """
    details = str(error)
    if isinstance(error, RpcError) and error.method.startswith(_ADMIN):
        details = error.details
        if error.status is grpc.StatusCode.INTERNAL and error.info.request_id:
            details += f" (the coordinator's log has more, under request_id={error.info.request_id})"
    text = " ".join(details.split()) or type(error).__name__
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
