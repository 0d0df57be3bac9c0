"""Lets a bundled Java trust the certificates that this machine trusts.

A Java from a Python wheel carries its own list of authorities, so behind a proxy with a company's certificate
it reaches nothing although Python does. The authorities that Python's own TLS uses are therefore written out
as a Java trust store.

The format is JKS: magic, version, count; per entry a tag, an alias, a time and the certificate; then SHA-1
over a salted password and all before it. It holds nothing secret: the password is the customary one.
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
    """JVM options that replace Java's authorities by this machine's, written below `folder`.

    Empty when Python knows of none: Java's own then stay in force.
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
    """A JKS trust store of DER certificates; the same bytes for the same certificates."""
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
    """Java's writeUTF of ASCII text: length, then the bytes."""
    encoded = ascii_text.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded
