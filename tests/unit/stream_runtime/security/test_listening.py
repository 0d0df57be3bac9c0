"""Where a service may listen, and what it says when it may not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.unit.stream_runtime.security.secured import secured
from tidemark.config import Address
from tidemark.stream_runtime.security.listening import ListenError, check_listen_address

ANYWHERE = Address("0.0.0.0", 7411)
TLS = "tls: {certificate: a, key: b, ca: c}"
MUTUAL = "tls: {certificate: a, key: b, ca: c, client_auth: require}"
TOKENS = "tokens: {file: t}"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_loopback_needs_nothing(host: str):
    check_listen_address(Address(host, 0), allow_remote=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "no-such-host.invalid"])
def test_elsewhere_is_refused_without_protection(host: str):
    with pytest.raises(ListenError, match="reached from other machines.*no authentication.*security.tls"):
        check_listen_address(Address(host, 7411), allow_remote=False)


@pytest.mark.parametrize(
    ("section", "missing"),
    [
        ("{}", "calls are not encrypted"),
        (f"{{{TOKENS}}}", "tokens are not encrypted"),
        (f"{{{TLS}}}", "no authentication"),
    ],
)
def test_half_a_protection_is_refused_unless_said_explicitly(
    tmp_path: Path, section: str, missing: str, caplog: pytest.LogCaptureFixture
):
    config = secured(tmp_path, section).security
    with pytest.raises(ListenError, match=missing):
        check_listen_address(ANYWHERE, False, config)
    with caplog.at_level(logging.WARNING, "tidemark.security"):
        check_listen_address(ANYWHERE, True, config)
    assert missing in caplog.text
    assert "allow_remote" in caplog.text


@pytest.mark.parametrize("section", [f"{{{TLS}, {TOKENS}}}", f"{{{MUTUAL}}}", f"{{{MUTUAL}, {TOKENS}}}"])
def test_encrypted_and_known_callers_may_come_from_anywhere(
    tmp_path: Path, section: str, caplog: pytest.LogCaptureFixture
):
    check_listen_address(ANYWHERE, False, secured(tmp_path, section).security)
    assert caplog.text == ""
