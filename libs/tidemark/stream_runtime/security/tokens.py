"""Bearer tokens of 244 random bits, and the list of accepted callers, which has only the tokens' hashes.

The list is a text (a file of mode 0600, or an environment variable) with a line for each caller:

    # roles        credential                        name
    read           sha256:9f86d081884c7d65…          grafana
    operate        sha256:60303ae22b998861…          anna
    service        cert:assigner.tidemark.internal   assigners

`sha256` is the hash of a token's text. It needs no salt, because nobody can guess a token. `cert` is a name
in a client's certificate (subject alternative name or common name), which TLS has verified. Several roles are
separated by commas. `tidemark token` makes a token and its line.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.config.security_model import SecretSource
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.security.errors import SecurityConfigError
from tidemark.stream_runtime.security.roles import GRANTS, Caller, Role
from tidemark.stream_runtime.security.secret_file import read_secret

PREFIX: Final = "tdm_"
TOKEN: Final = re.compile(r"tdm_[0-9a-f]{64}")
_TOKEN_CHARS_MIN: Final = 32
_TOKEN_CHARS_MAX: Final = 512
_SHOWABLE: Final = re.compile(r"[!-~]+")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[\w.@+-]{1,100}")
_ENTRIES_MAX: Final = 10_000


def new_token(ids: IdSource) -> str:
    """A new random token. By its prefix, scanners for leaked secrets can find it."""
    return PREFIX + (ids.uuid() + ids.uuid()).replace("-", "")


def token_line(token: str, roles: Collection[Role], name: str) -> str:
    """The line of the list by which the token is accepted. Raises SecurityConfigError for a wrong name."""
    if not _NAME.fullmatch(name):
        raise SecurityConfigError(
            f"{name!r} cannot be the name of a token: it may have letters, digits and . _ @ + - only"
        )
    listed = ",".join(role.value for role in Role if role in roles)
    return f"{listed} sha256:{hashlib.sha256(token.encode()).hexdigest()} {name}"


@dataclass(frozen=True)
class AccessList:
    """The accepted callers, by the hash of their token, and by a name in their certificate."""

    by_digest: tuple[tuple[bytes, Caller], ...]
    by_certificate: Mapping[str, Caller]

    def holder(self, token: str) -> Caller | None:
        """The caller with this token; None if it is not in the list.

        It compares all entries in constant time, so that the time tells nothing about the list.
        """
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        holder: Caller | None = None
        for known, caller in self.by_digest:
            if hmac.compare_digest(known, digest):
                holder = caller
        return holder

    def owner(self, names: Collection[str]) -> Caller | None:
        """The caller whose certificate has one of these names; None if none is in the list."""
        return next((self.by_certificate[name] for name in names if name in self.by_certificate), None)


def parse_access_list(text: str, where: str) -> AccessList:
    """Parses the list. Raises SecurityConfigError, whose text has `where` and the number of the line but not
    its content, which may be a token.
    """
    digests: list[tuple[bytes, Caller]] = []
    certificates: dict[str, Caller] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if len(digests) + len(certificates) >= _ENTRIES_MAX:
            raise SecurityConfigError(f"{where}: more than {_ENTRIES_MAX} entries")
        try:
            roles, (kind, _, credential) = _roles(words[0]), words[1].partition(":")
            caller = Caller(words[2] if len(words) > 2 else f"line {number}", roles)
        except (ValueError, IndexError):
            raise _unreadable(where, number) from None
        if kind == "sha256" and _DIGEST.fullmatch(credential.lower()) and len(words) <= 3:
            digests.append((bytes.fromhex(credential), caller))
        elif kind == "cert" and credential and len(words) <= 3:
            certificates[credential] = caller
        else:
            raise _unreadable(where, number)
    return AccessList(tuple(digests), certificates)


def _roles(text: str) -> frozenset[Role]:
    named = [Role(word) for word in text.split(",")]
    return frozenset().union(*(GRANTS[role] for role in named))


def _unreadable(where: str, number: int) -> SecurityConfigError:
    return SecurityConfigError(
        f"{where}: line {number} is neither `ROLES sha256:HASH NAME` nor `ROLES cert:NAME NAME` with the "
        f"roles {', '.join(role.value for role in Role)}: make the line with `tidemark token`"
    )


def read_source(source: SecretSource, setting: str, env: Mapping[str, str] | None = None) -> str:
    """The secret text from its file or environment variable. Raises SecurityConfigError, which shows nothing
    of it.
    """
    if source.file is not None:
        try:
            return read_secret(source.file, setting).decode("utf-8")
        except UnicodeDecodeError:
            raise SecurityConfigError(f"{setting}: {source.file} is not a text in UTF-8") from None
    assert source.env is not None
    text = (os.environ if env is None else env).get(source.env, "")
    if not text.strip():
        raise SecurityConfigError(f"{setting}: environment variable {source.env} is not set")
    return text


def checked_token(text: str, where: str) -> str:
    """The token without surrounding white space. Raises SecurityConfigError, which does not show it."""
    token = text.strip()
    if not _SHOWABLE.fullmatch(token) or not _TOKEN_CHARS_MIN <= len(token) <= _TOKEN_CHARS_MAX:
        raise SecurityConfigError(
            f"{where} holds no token ({_TOKEN_CHARS_MIN} to {_TOKEN_CHARS_MAX} printable characters, no "
            "spaces): make one with `tidemark token`"
        )
    return token
