"""The client side of a SCRAM login (RFC 5802, RFC 7677) without channel binding, as Kafka's brokers do it."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

_ITERATIONS_MAX: Final = 1_000_000


class ScramClient:
    """One login. Call `first`, `proof` and `check` in this order. They raise ValueError if the answer is not
    that of a broker that knows the password.
    """

    HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        """``nonce`` is a text that was never used before, without a comma."""
        self._hash = self.HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={name},r={self._nonce}"
        self._signature = b""

    def first(self) -> bytes:
        """The client's first message."""
        return f"n,,{self._first}".encode()

    def proof(self, answer: bytes) -> bytes:
        """The client's last message, with the proof that it knows the password. ``answer`` is the server's
        first message.
        """
        said = answer.decode()
        parts = _parts(said)
        nonce, rounds = parts["r"], int(parts["i"])
        if not nonce.startswith(self._nonce) or not 0 < rounds <= _ITERATIONS_MAX:
            raise ValueError("the broker's answer does not belong to this login")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, base64.b64decode(parts["s"]), rounds)
        last = f"c=biws,r={nonce}"
        signed = f"{self._first},{said},{last}".encode()
        key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{last},p={base64.b64encode(proof).decode()}".encode()

    def check(self, answer: bytes) -> None:
        """Checks the server's last message, by which the broker proves that it knows the password."""
        given = base64.b64decode(_parts(answer.decode()).get("v", ""))
        if not hmac.compare_digest(given, self._signature):
            raise ValueError("the broker could not prove that it knows the password")

    def _hmac(self, key: bytes, content: bytes) -> bytes:
        return hmac.new(key, content, self._hash).digest()


def _parts(said: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in said.split(",") if part[1:2] == "="}
