"""The trust store is one that Java itself reads."""

import ssl
import subprocess

import pytest

from tidemark.stream_runtime.platform import trust
from tidemark.stream_runtime.platform.java import find_java


def test_written_store_is_listed_by_keytool_with_its_checksum_verified(tmp_path):
    options = trust.trust_store_options(tmp_path)
    authorities = set(ssl.create_default_context().get_ca_certs(binary_form=True))
    if not authorities:
        pytest.skip("this machine's Python knows no authorities")
    store = options[0].removeprefix("-Djavax.net.ssl.trustStore=")
    command = [
        str(find_java().home / "bin" / "keytool"),
        "-list",
        "-keystore",
        store,
        "-storepass",
        "changeit",
    ]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"contains {len(authorities)} entries" in listed


def test_same_authorities_give_the_same_bytes():
    assert trust.encode_jks([b"one", b"two"]) == trust.encode_jks([b"one", b"two"])
    assert trust.encode_jks([b"one", b"two"]) != trust.encode_jks([b"one"])


def test_python_without_authorities_leaves_java_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("ssl.create_default_context", lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    assert trust.trust_store_options(tmp_path) == []
