"""`tidemark token`, and what the command line does about secrets in its own words."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tidemark.cli.main import main
from tidemark.redaction import redact_settings, redact_text
from tidemark.stream_runtime.security.roles import Role
from tidemark.stream_runtime.security.tokens import TOKEN, parse_access_list

HEX = "0123456789abcdef" * 4


def test_token_is_shown_once_and_its_line_lets_it_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "--role", "read", "--role", "service", "--name", "both", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert TOKEN.fullmatch(document["token"])
    holder = parse_access_list(document["line"], "here").holder(document["token"])
    assert holder == ("both", frozenset({Role.READ, Role.SERVICE}))


def test_token_goes_to_files_that_are_for_their_owner_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, tokens = tmp_path / "own.token", tmp_path / "tokens"
    arguments = ["token", "--role", "operate", "--name", "anna", "--list", str(tokens)]
    assert main([*arguments, "--out", str(out)]) == 0
    assert main([*arguments, "--out", str(tmp_path / "second.token")]) == 0
    assert capsys.readouterr().out == ""
    known = parse_access_list(tokens.read_text(), "tokens")
    assert len(known.by_digest) == 2
    assert known.holder(out.read_text().strip()).name == "anna"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (out, tokens)} == {0o600}


def test_token_does_not_replace_a_file_or_follow_a_link(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "link").symlink_to("victim")
    arguments = ["token", "--role", "read", "--name", "x"]
    assert main([*arguments, "--out", str(tmp_path / "victim")]) == 1
    assert main([*arguments, "--list", str(tmp_path / "link")]) == 1
    assert (tmp_path / "victim").read_text() == "kept"


@pytest.mark.parametrize(
    "text",
    [
        f"tdm_{HEX}",
        f"shown: tdm_{HEX}, refused",
        f"Authorization: Bearer {HEX}",
        f"authorization: basic {HEX}=",
        f"password={HEX}",
        f'sasl.jaas.config=x required username="u" password="{HEX}";',
        f"https://me:{HEX}@host/",
        f"basic.auth.user.info: me:{HEX}",
    ],
)
def test_secrets_in_texts_are_hidden(text: str) -> None:
    assert HEX not in redact_text(text)


def test_names_of_our_own_settings_and_files_stay() -> None:
    said = "security.tokens: /etc/tidemark/tokens: No such file or directory"
    assert redact_text(said) == said


@pytest.mark.parametrize(
    "key",
    ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret", "fs.access.key"],
)
def test_secret_settings_are_hidden(key: str) -> None:
    assert redact_settings({key: HEX}) == {key: "***"}
