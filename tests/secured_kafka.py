"""An embedded broker that others reach by SASL_SSL alone: PLAIN over TLS, with client certificates."""

from __future__ import annotations

import random
from pathlib import Path

from stream_runtime.platform.broker_files import HOST, free_ports
from stream_runtime.platform.embedded_kafka import EmbeddedKafka
from stream_runtime.platform.jars import KAFKA, ensure_jars
from stream_runtime.platform.java import JavaRuntime
from tests.certificates import Authority

USER = "tidemark"


class SecuredKafka(EmbeddedKafka):
    """The plain listener stays for the broker and for who watches it; `secured_servers` is for clients.

    A client shows a certificate of `authority` and `USER` with `password`.
    """

    def __init__(self, folder: Path, java: JavaRuntime, authority: Authority, password: str) -> None:
        super().__init__(folder, ensure_jars(KAFKA.name, java), java.home)
        own = authority.issue("broker.internal", "localhost", "127.0.0.1")
        keystore = folder / "broker.pem"
        keystore.parent.mkdir(parents=True, exist_ok=True)
        keystore.touch(mode=0o600)
        keystore.write_bytes(own.key.read_bytes() + own.certificate.read_bytes())
        (port,) = free_ports(1, random.Random())
        self.secured_servers = f"localhost:{port}"
        node = self._cluster.nodes[0]
        plain = f"PLAINTEXT://{HOST}:{node.broker}"
        login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        self._settings.update(
            {
                "listeners": f"{plain},SASL_SSL://{HOST}:{port},CONTROLLER://{HOST}:{node.controller}",
                "advertised.listeners": f"{plain},SASL_SSL://localhost:{port}",
                "listener.security.protocol.map": ",".join(
                    ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "SASL_SSL:SASL_SSL")
                ),
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{login} user_{USER}="{password}";',
                "listener.name.sasl_ssl.ssl.client.auth": "required",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority.ca),
            }
        )
