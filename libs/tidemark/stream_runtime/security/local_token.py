"""The token that `tidemark run` makes for its own processes, and for commands of the same user.

If callers must be known (`security:`), the services need a token for each other. `run` makes one at its
start, writes it into `state.path` (a folder of mode 0700, a file of mode 0600), and removes it at its end. It
is accepted in addition to the configured list, with all roles, because a user who can read that file can read
and change the table's state anyway.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidemark.config.model import TableConfigFile
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.security.errors import SecurityConfigError
from tidemark.stream_runtime.security.roles import ALL_ROLES
from tidemark.stream_runtime.security.secret_file import create_secret, read_secret
from tidemark.stream_runtime.security.tokens import AccessList, new_token, parse_access_list, token_line

NAME: Final = "run.token"
TOKEN_FILE_VARIABLE: Final = "TIDEMARK_TOKEN_FILE"


def local_token_path(state: Path) -> Path:
    """The path of its file in `state.path`."""
    return state / NAME


def write_local_token(state: Path, ids: IdSource) -> None:
    """Writes a new token. It replaces a former one, which is not accepted any more."""
    path = local_token_path(state)
    path.unlink(missing_ok=True)
    create_secret(path, new_token(ids) + "\n")


def remove_local_token(state: Path) -> None:
    """Removes the file. Repeatable."""
    local_token_path(state).unlink(missing_ok=True)


def own_token(config: TableConfigFile) -> dict[str, str]:
    """The environment variable with which the processes of a run use its token, whatever the user's token is;
    {} if callers need not be known.
    """
    if not config.security.knows_callers:
        return {}
    return {TOKEN_FILE_VARIABLE: str(local_token_path(config.state.path))}


def with_local_token(configured: AccessList, state: Path) -> AccessList:
    """The list, with the local token added if there is one."""
    path = local_token_path(state)
    try:
        token = read_secret(path, "security.token").decode("ascii").strip()
    except (SecurityConfigError, UnicodeDecodeError):
        return configured
    line = token_line(token, ALL_ROLES, "tidemark-run")
    local = parse_access_list(line, str(path)).by_digest
    return AccessList((*configured.by_digest, *local), configured.by_certificate)
