"""Tokens: what a list of them says, what it refuses, and that no message shows one."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from testing.ids import SeededIds
from tests.unit.stream_runtime.security.secured import secret_file
from tidemark.config.security_model import SecretSource
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.security.errors import SecurityConfigError
from tidemark.stream_runtime.security.roles import Role
from tidemark.stream_runtime.security.tokens import (
    TOKEN,
    checked_token,
    new_token,
    parse_access_list,
    read_source,
    token_line,
)

READER, OPERATOR, STRANGER = (new_token(SeededIds(seed)) for seed in (1, 2, 3))


def test_new_tokens_differ_and_have_the_known_form():
    made = {new_token(SystemIds()) for _ in range(100)}
    assert len(made) == 100
    assert all(TOKEN.fullmatch(token) for token in made)


def test_line_lets_its_token_in_and_does_not_hold_it():
    line = token_line(READER, [Role.READ], "grafana")
    assert READER not in line
    known = parse_access_list(line, "here")
    assert known.holder(READER) == ("grafana", frozenset({Role.READ}))
    assert known.holder(STRANGER) is None


def test_operate_includes_read_and_nothing_of_a_service():
    known = parse_access_list(token_line(OPERATOR, [Role.OPERATE], "anna"), "here")
    assert known.holder(OPERATOR).roles == {Role.READ, Role.OPERATE}


def test_service_is_a_role_of_its_own():
    known = parse_access_list(token_line(OPERATOR, [Role.SERVICE], "writer"), "here")
    assert known.holder(OPERATOR).roles == {Role.SERVICE}


def test_comments_and_empty_lines_are_skipped_and_names_may_be_missing():
    text = (
        f"# who\n\n  {token_line(READER, [Role.READ], 'a')} # note\n{token_line(OPERATOR, list(Role), 'b')}\n"
    )
    nameless = text + " ".join(token_line(STRANGER, [Role.READ], "x").split()[:2])
    known = parse_access_list(nameless, "here")
    assert [caller.name for _, caller in known.by_digest] == ["a", "b", "line 5"]
    assert known.holder(OPERATOR).roles == set(Role)


def test_certificate_name_is_a_credential():
    known = parse_access_list("service cert:assigner.internal assigners", "here")
    assert known.owner(["other", "assigner.internal"]) == ("assigners", frozenset({Role.SERVICE}))
    assert known.owner(["other"]) is None
    assert known.owner([]) is None


@pytest.mark.parametrize(
    "line",
    [
        f"read {READER} plain-token",
        READER,
        f"admin sha256:{hashlib.sha256(b'x').hexdigest()} x",
        "read sha256:abc x",
        "read cert: x",
        f"read md5:{'a' * 64} x",
        f"{token_line(READER, [Role.READ], 'a')} too much",
    ],
)
def test_other_lines_are_refused_by_number_without_showing_them(line):
    with pytest.raises(SecurityConfigError, match=r"tokens\.txt: line 2 is neither") as failed:
        parse_access_list(f"# first\n{line}\n", "tokens.txt")
    assert READER not in str(failed.value)
    assert not TOKEN.search(str(failed.value))


def test_every_entry_is_compared_in_constant_time(monkeypatch):
    """Not the first match, nor the first difference, ends the search."""
    compared: list[bytes] = []
    real = hmac.compare_digest

    def compare(known: bytes, shown: bytes) -> bool:
        compared.append(known)
        return real(known, shown)

    monkeypatch.setattr("tidemark.stream_runtime.security.tokens.hmac.compare_digest", compare)
    lines = [token_line(new_token(SeededIds(seed)), [Role.READ], f"n{seed}") for seed in range(1, 6)]
    known = parse_access_list("\n".join(lines), "here")
    for shown in (READER, STRANGER, "", "x" * 10_000, "\udcff"):
        compared.clear()
        known.holder(shown)
        assert len(compared) == 5


def test_names_that_would_break_a_line_are_refused():
    for name in ("", "two words", "line\nbreak", "#", "x" * 101):
        with pytest.raises(SecurityConfigError, match="cannot be the name of a token"):
            token_line(READER, [Role.READ], name)


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o602, 0o666])
def test_secret_file_of_others_is_refused(tmp_path: Path, mode: int):
    path = secret_file(tmp_path / "token", READER)
    path.chmod(mode)
    with pytest.raises(
        SecurityConfigError, match=rf"token can be read or changed by others.*{mode:04o}.*600"
    ):
        read_source(SecretSource(file=path), "security.token")


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o440, 0o640])
def test_secret_file_of_owner_and_group_is_read(tmp_path: Path, mode: int):
    """Containers get mounted secrets by their group."""
    path = secret_file(tmp_path / "token", READER)
    path.chmod(mode)
    assert read_source(SecretSource(file=path), "security.token") == READER


def test_what_is_no_file_is_refused_by_its_name(tmp_path: Path):
    with pytest.raises(SecurityConfigError, match="security.token: .*gone: No such file"):
        read_source(SecretSource(file=tmp_path / "gone"), "security.token")
    with pytest.raises(SecurityConfigError, match="is not a file|Is a directory"):
        read_source(SecretSource(file=tmp_path), "security.token")
    (tmp_path / "large").touch(mode=0o600)
    (tmp_path / "large").write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(SecurityConfigError, match="larger than"):
        read_source(SecretSource(file=tmp_path / "large"), "security.token")


def test_variable_is_a_source_and_its_absence_an_error():
    source = SecretSource(env="MY_TOKEN")
    assert read_source(source, "security.token", {"MY_TOKEN": READER}) == READER
    with pytest.raises(SecurityConfigError, match="security.token: environment variable MY_TOKEN is not set"):
        read_source(source, "security.token", {})


@pytest.mark.parametrize("text", ["short", "two words " * 8, "x" * 513, "tab\there" * 8, ""])
def test_what_is_no_token_is_refused_without_showing_it(text: str):
    with pytest.raises(SecurityConfigError, match="holds no token") as failed:
        checked_token(text, "security.token")
    assert not text or text not in str(failed.value)
