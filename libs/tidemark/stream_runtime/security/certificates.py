"""Reads certificates and keys (PEM), and names what is wrong with them.

With a wrong file a TLS library only fails its handshakes. So the files are checked before: they can be read
and are certificates, valid now; the key belongs to the certificate, and other users cannot read it.

The library that does it is imported by who has a file to check: a process without TLS starts without it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemark.config.security_model import TlsConfig
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.security.errors import SecurityConfigError
from tidemark.stream_runtime.security.secret_file import read_file, read_secret

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_SOON: Final = timedelta(days=14)
_log = logging.getLogger("tidemark.security")


class OwnCertificate(NamedTuple):
    """The PEM texts of a certificate with its chain, and of its key."""

    chain: bytes
    key: bytes


def load_own(tls: TlsConfig, clock: Clock) -> OwnCertificate | None:
    """The certificate of this process; None if none is configured. Raises SecurityConfigError."""
    if tls.certificate is None or tls.key is None:
        return None
    chain = read_file(tls.certificate, "security.tls.certificate")
    first = _certificates(chain, tls.certificate, "security.tls.certificate")[0]
    _check_dates(first, tls.certificate, "security.tls.certificate", clock)
    key = read_secret(tls.key, "security.tls.key")
    if _public(_private_key(key, tls.key).public_key()) != _public(first.public_key()):
        raise SecurityConfigError(
            f"security.tls.key: {tls.key} is not the key of the certificate in {tls.certificate}"
        )
    return OwnCertificate(chain, key)


def load_authority(tls: TlsConfig, clock: Clock) -> bytes | None:
    """The PEM text of the authorities whose certificates are trusted; None for those of the machine.

    Raises SecurityConfigError, also if all of them have expired.
    """
    if tls.ca is None:
        return None
    content = read_file(tls.ca, "security.tls.ca")
    authorities = _certificates(content, tls.ca, "security.tls.ca")
    now = _now(clock)
    if all(authority.not_valid_after_utc < now for authority in authorities):
        _check_dates(authorities[0], tls.ca, "security.tls.ca", clock)
    return content


def _certificates(content: bytes, path: Path, setting: str) -> Sequence[x509.Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        raise SecurityConfigError(f"{setting}: {path} holds no certificate in PEM form") from None


def _private_key(content: bytes, path: Path) -> PrivateKeyTypes:
    from cryptography.hazmat.primitives import serialization

    try:
        return serialization.load_pem_private_key(content, password=None)
    except TypeError:
        raise SecurityConfigError(
            f"security.tls.key: {path} is encrypted, and a service cannot ask for its password: store it "
            "decrypted, with mode 0600"
        ) from None
    except ValueError:
        raise SecurityConfigError(f"security.tls.key: {path} holds no private key in PEM form") from None


def _public(key: object) -> bytes:
    from cryptography.hazmat.primitives import serialization

    content: bytes = key.public_bytes(  # type: ignore[attr-defined]
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return content


def _check_dates(certificate: x509.Certificate, path: Path, setting: str, clock: Clock) -> None:
    now, last = _now(clock), certificate.not_valid_after_utc
    if last < now:
        raise SecurityConfigError(
            f"{setting}: the certificate in {path} expired at {last:%Y-%m-%d %H:%M} UTC"
        )
    first = certificate.not_valid_before_utc
    if first > now:
        raise SecurityConfigError(
            f"{setting}: the certificate in {path} is valid from {first:%Y-%m-%d %H:%M} UTC on: is this "
            "machine's clock right?"
        )
    if last < now + _SOON:
        _log.warning("the certificate in %s expires at %s UTC", path, f"{last:%Y-%m-%d %H:%M}")


def _now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)
