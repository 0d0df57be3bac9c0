"""What is said of a certificate or key that cannot be used, and that replaced ones are taken."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.certificates import Authority, Pair
from tests.unit.stream_runtime.security.secured import secured
from tidemark.config import ConfigError
from tidemark.config.security_model import ClientAuth, TlsConfig
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.security.certificates import load_authority, load_own
from tidemark.stream_runtime.security.errors import SecurityConfigError
from tidemark.stream_runtime.security.secret_file import Reloaded
from tidemark.stream_runtime.security.server import ServerTls

CLOCK = SystemClock()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def tls(pair: Pair, authority: Authority) -> TlsConfig:
    return TlsConfig(certificate=pair.certificate, key=pair.key, ca=authority.ca)


def why(config: TlsConfig) -> str:
    with pytest.raises(SecurityConfigError) as failed:
        load_own(config, CLOCK)
    return str(failed.value)


def test_fitting_pair_is_loaded(authority: Authority):
    pair = authority.issue("localhost", "127.0.0.1")
    loaded = load_own(tls(pair, authority), CLOCK)
    assert loaded == (pair.certificate.read_bytes(), pair.key.read_bytes())
    assert load_authority(tls(pair, authority), CLOCK) == authority.ca.read_bytes()


def test_key_of_another_certificate_is_named(authority: Authority):
    one, other = authority.issue("one"), authority.issue("other")
    assert f"{other.key} is not the key of the certificate in {one.certificate}" in why(
        TlsConfig(certificate=one.certificate, key=other.key)
    )


@pytest.mark.parametrize("mode", [0o644, 0o640 | 0o020, 0o606])
def test_key_that_others_can_use_is_refused(authority: Authority, mode: int):
    pair = authority.issue("localhost")
    pair.key.chmod(mode)
    assert f"security.tls.key: {pair.key} can be read or changed by others" in why(tls(pair, authority))


def test_missing_files_are_named(authority: Authority):
    pair = authority.issue("localhost")
    pair.key.unlink()
    assert f"security.tls.key: {pair.key}: No such file" in why(tls(pair, authority))
    pair.certificate.unlink()
    assert f"security.tls.certificate: {pair.certificate}: No such file" in why(tls(pair, authority))


def test_expired_future_and_broken_certificates_are_told_apart(authority: Authority):
    assert "expired at" in why(tls(authority.issue("a", first_day=-3, last_day=-1), authority))
    assert "is this machine's clock right?" in why(tls(authority.issue("b", first_day=1), authority))
    pair = authority.issue("c")
    pair.certificate.write_text("nothing")
    assert "holds no certificate in PEM form" in why(tls(pair, authority))
    pair = authority.issue("d")
    pair.key.write_text("nothing")
    assert "holds no private key in PEM form" in why(tls(pair, authority))
    assert "is encrypted" in why(tls(authority.issue("e", password="hush"), authority))


def test_certificate_that_expires_soon_is_warned_of(authority: Authority, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "tidemark.security"):
        load_own(tls(authority.issue("soon", last_day=3), authority), CLOCK)
    assert "expires at" in caplog.text


def test_authority_is_checked_too(tmp_path: Path):
    (tmp_path / "ca").write_text("nothing")
    with pytest.raises(SecurityConfigError, match=r"security\.tls\.ca: .*holds no certificate"):
        load_authority(TlsConfig(ca=tmp_path / "ca"), CLOCK)


def test_server_needs_a_certificate_of_its_own(authority: Authority):
    with pytest.raises(SecurityConfigError, match=r"security\.tls\.certificate: a service needs it"):
        ServerTls(TlsConfig(ca=authority.ca), CLOCK)


def test_https_and_grpc_take_the_replaced_certificate_and_keep_the_old_one_for_a_broken(
    authority: Authority, caplog: pytest.LogCaptureFixture
):
    pair = authority.issue("localhost")
    context = ServerTls(tls(pair, authority), CLOCK).https_context()
    first = context()
    assert context() is first
    pair.certificate.write_text("half of a fi")
    with caplog.at_level(logging.ERROR, "tidemark.security"):
        assert context() is first
        assert context() is first
    assert (
        caplog.text.count("holds no certificate in PEM form; the content that was read before stays in use")
        == 1
    )
    authority.issue("localhost")
    assert context() is not first


def test_reloaded_reads_once_a_change(tmp_path: Path):
    file, reads, complaints = tmp_path / "file", [1], list[str]()
    file.write_text("one")

    def load() -> str:
        reads.append(1)
        return file.read_text()

    reloaded = Reloaded((file,), load, complaints.append)
    assert [reloaded.current() for _ in range(3)] == ["one"] * 3
    file.write_text("three")
    assert reloaded.current() == "three"
    assert len(reads) == 3
    assert complaints == []


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("{tls: {certificate: a}}", "security.tls.key"),
        ("{tls: {key: a}}", "security.tls.certificate"),
        ("{tls: {certificate: a, key: b, client_auth: require}}", "security.tls.ca"),
        ("{tls: {ca: a, client_auth: require}}", "security.tls.certificate"),
        ("{tls: {client_auth: perhaps}}", "security.tls.client_auth"),
        ("{tokens: {file: a, env: B}}", "security.tokens"),
        ("{tokens: {}}", "security.tokens"),
        ("{token: {}}", "security.token"),
        ("{token: {env: 'tdm_secret secret'}}", "security.token.env"),
        ("{tolkens: {}}", "security.tolkens"),
    ],
)
def test_section_that_makes_no_sense_is_refused_by_its_key(tmp_path: Path, section: str, key: str):
    with pytest.raises(ConfigError) as failed:
        secured(tmp_path, section)
    assert failed.value.key_path == key
    assert "tdm_secret" not in str(failed.value)


def test_links_stay_links(tmp_path: Path):
    """Mounted secrets are replaced by turning a link: the path that was configured counts, not its target."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    config = secured(tmp_path, "{tls: {certificate: link/a, key: link/b, client_auth: none}}").security
    assert config.tls.certificate == tmp_path / "link/a"
    assert config.tls.client_auth is ClientAuth.NONE
