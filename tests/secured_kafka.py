"""An embedded broker that others reach by SASL_SSL alone: SCRAM over TLS, with client certificates, and every
operation refused that no ACL allows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.certificates import Authority
from tests.own_ports import own_ports
from tidemark.stream_runtime.platform.broker_files import HOST
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import JavaRuntime

_ITERATIONS = 4096
_WAIT_S = 60.0
SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


@dataclass(frozen=True)
class Grant:
    """`operations` on the resources of a kind (topic, group, transactional_id, cluster) of that name, or that
    begin with it.
    """

    kind: str
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False


def service_grants(table: str, *inputs: str) -> dict[str, list[Grant]]:
    """The least that each service of a table needs, as docs/security.md has it."""

    def own(topic: str, *operations: str) -> Grant:
        return Grant("topic", f"{table}.{topic}", operations)

    readers = Grant("group", "tidemark-", ("DESCRIBE",), prefixed=True)
    brokers = Grant("cluster", "kafka-cluster", ("DESCRIBE_CONFIGS",))
    return {
        "coordinator": [
            readers,
            brokers,
            Grant(
                "topic",
                f"{table}.",
                ("CREATE", "DESCRIBE", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
                prefixed=True,
            ),
            own("ledger", "READ"),
            own("epochs", "READ", "WRITE"),
            own("dead-letter", "READ", "WRITE"),
            *(Grant("topic", each, ("CREATE", "READ", "WRITE")) for each in inputs),
            Grant("transactional_id", f"{table}-", ("WRITE",), prefixed=True),
        ],
        "assigner": [
            readers,
            brokers,
            *(Grant("topic", each, ("READ",)) for each in inputs),
            own("epochs", "READ"),
            own("ledger", "READ", "WRITE"),
            own("keyed", "READ", "WRITE"),
            # Index and tombstones: an owner that takes a lane over reads what its former owner tagged.
            own("index", "READ", "WRITE"),
            own("tombstones", "READ", "WRITE"),
            *(own(each, "WRITE") for each in ("data", "dead-letter")),
            Grant("transactional_id", f"{table}-shuffle-", ("WRITE",), prefixed=True),
            Grant("transactional_id", f"{table}-assign-", ("WRITE",), prefixed=True),
        ],
        "writer": [readers, own("data", "READ"), own("index", "READ"), own("epochs", "DESCRIBE")],
    }


class SecuredKafka(EmbeddedKafka):
    """The plain listener stays for the broker and for who watches it, who may do everything there;
    `secured_servers` is for clients, with a certificate of `authority` and a user of `add_user`.
    """

    def __init__(self, folder: Path, java: JavaRuntime, authority: Authority) -> None:
        super().__init__(folder, ensure_jars(KAFKA.name, java), java.home)
        own = authority.issue("broker.internal", "localhost", "127.0.0.1")
        keystore = folder / "broker.pem"
        keystore.parent.mkdir(parents=True, exist_ok=True)
        keystore.touch(mode=0o600)
        keystore.write_bytes(own.key.read_bytes() + own.certificate.read_bytes())
        (port,) = own_ports(1)
        self.secured_servers = f"localhost:{port}"
        node = self._cluster.nodes[0]
        plain = f"PLAINTEXT://{HOST}:{node.broker}"
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        self._settings.update(
            {
                "listeners": f"{plain},SASL_SSL://{HOST}:{port},CONTROLLER://{HOST}:{node.controller}",
                "advertised.listeners": f"{plain},SASL_SSL://localhost:{port}",
                "listener.security.protocol.map": ",".join(
                    ("PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "SASL_SSL:SASL_SSL")
                ),
                "inter.broker.listener.name": "PLAINTEXT",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS",
                "sasl.enabled.mechanisms": ",".join(SCRAM),
                **{f"listener.name.sasl_ssl.{each.lower()}.sasl.jaas.config": login for each in SCRAM},
                "listener.name.sasl_ssl.ssl.client.auth": "required",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(authority.ca),
            }
        )

    def add_user(
        self, user: str, password: str, grants: Iterable[Grant] = (), mechanism: str = "SCRAM-SHA-512"
    ) -> None:
        """Once the broker has started, which knows the user and what it may do a moment later."""
        credential = ScramCredentialInfo(SCRAM[mechanism], _ITERATIONS)
        made = UserScramCredentialUpsertion(user, credential, password.encode())
        admin = self._admin()
        for future in admin.alter_user_scram_credentials([made]).values():
            future.result(_WAIT_S)
        self.allow(user, grants)

    def allow(self, user: str, grants: Iterable[Grant]) -> None:
        """Adds to what the user may do."""
        single = dict.fromkeys(
            replace(grant, operations=(each,)) for grant in grants for each in grant.operations
        )
        bindings = [_binding(user, grant) for grant in single]
        admin = self._admin()
        for future in (admin.create_acls(bindings) if bindings else {}).values():
            future.result(_WAIT_S)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 2})


def _binding(user: str, grant: Grant) -> AclBinding:
    (operation,) = grant.operations
    kinds: Mapping[str, ResourceType] = {
        "topic": ResourceType.TOPIC,
        "group": ResourceType.GROUP,
        "transactional_id": ResourceType.TRANSACTIONAL_ID,
        "cluster": ResourceType.BROKER,
    }
    pattern = ResourcePatternType.PREFIXED if grant.prefixed else ResourcePatternType.LITERAL
    return AclBinding(
        kinds[grant.kind],
        grant.name,
        pattern,
        f"User:{user}",
        "*",
        AclOperation[operation],
        AclPermissionType.ALLOW,
    )
