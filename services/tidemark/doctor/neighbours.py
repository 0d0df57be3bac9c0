"""Checks of what is around the services: their ports are free, schema registry and Spark's master answer."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Iterator
from typing import Final

import psutil

from tidemark.config import Address, TableConfigFile
from tidemark.config.run_file import RunFile
from tidemark.doctor.checks import Finding, SkippedError, fails, ok, skipped, warning
from tidemark.stream_runtime.schema_registry.confluent import ConfluentSchemaSource
from tidemark.stream_runtime.schema_registry.ports import UnknownSchemaError

_CONNECT_S: Final = 3.0
_SOME_SCHEMA: Final = 1


def ports(config: TableConfigFile, running: RunFile | None, served: bool) -> Iterator[Finding]:
    """Checks that every address below `services` is free, or in use by this table's own services."""
    for field in dataclasses.fields(config.services):
        at = getattr(config.services, field.name)
        if not isinstance(at, Address):
            continue
        name = f"services.{field.metadata.get('key') or field.name} {at}"
        if at.port == 0:
            yield ok(f"{name}: takes a free port")
            continue
        problem = _why_not_free(config.services.listening(at))
        if not problem:
            yield ok(f"{name}: free")
        elif running is not None:
            yield ok(f"{name}: in use; `tidemark run` (process {running.run}) is active")
        elif served:
            yield ok(f"{name}: in use; a coordinator answers at {config.services.coordinator}")
        else:
            yield fails(
                f"{name}: {problem}{_who_listens(at.port)}", "Stop that process, or choose another address"
            )


def _why_not_free(at: Address) -> str:
    """Why a service cannot listen at the address; "" when it can. It binds the address, as the service
    will.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(at.host, at.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _who_listens(port: int) -> str:
    try:
        for socket_ in psutil.net_connections("tcp"):
            listens = socket_.status == psutil.CONN_LISTEN and socket_.laddr and socket_.laddr.port == port
            if listens and socket_.pid:
                return f" (process {socket_.pid}, {psutil.Process(socket_.pid).name()})"
    except (psutil.Error, OSError):
        pass
    return ""


def registry(config: TableConfigFile) -> Iterator[Finding]:
    """Asks the schema registry for a schema. Any answer, also that there is no such schema, shows that
    address and credentials are right.

    Raises SkippedError without a registry, RegistryUnavailableError, RegistrySettingsError.
    """
    given = config.input.schema_registry
    if given is None:
        raise SkippedError("no input.schema_registry is configured")
    source = ConfluentSchemaSource(given)
    try:
        source.fetch(_SOME_SCHEMA)
    except UnknownSchemaError:
        yield ok(f"{given.url} answers")
    else:
        yield ok(f"{given.url} answers, and has schemas")
    finally:
        source.close()


def spark_master(config: TableConfigFile) -> Iterator[Finding]:
    """Checks that the masters of a standalone Spark cluster can be reached; other masters are not checked."""
    master = config.spark.get("spark.master", "local[2]")
    if not master.startswith("spark://"):
        yield (
            ok(f"spark.master is {master}")
            if master.startswith("local")
            else skipped(f"spark.master is {master}: its cluster manager is not checked")
        )
        return
    for at in master.removeprefix("spark://").split(","):
        host, _, port = at.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
            yield ok(f"Spark's master at {at} takes connections")
        except (OSError, ValueError) as error:
            yield warning(
                f"Spark's master at {at} does not answer: {error}",
                "Start it, or correct spark.master; with several masters one is enough",
            )
