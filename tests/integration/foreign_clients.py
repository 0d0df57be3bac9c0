"""Clients of the admin service that share nothing with ours: they know what its reflection tells them.

One is grpcurl, a Go program. The other builds its calls in Python from the reflected descriptors.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2  # noqa: F401 - its types are found by their names
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_status import rpc_status

from tidemark.stream_runtime.platform.jars import cache_dir

GRPCURL_MODULE: Final = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"
# A program that is run a few dozen times: to optimize it, and to link it with C, costs more than it saves.
_BUILD: Final = ("install", "-gcflags=all=-N -l", "-ldflags=-s -w")
_BUILD_S: Final = 300.0
_CALL_S: Final = 120.0
_DEADLINE_EXCEEDED: Final = 4
_UNDERSCORE: Final = re.compile(r"(?<=[a-z])_([a-z])")
_SHELL: Final = re.compile(r"^```sh$(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Answer:
    """`code`: gRPC's number of the status; messages and details in protobuf's JSON form."""

    code: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    details: dict[str, dict[str, Any]] = field(default_factory=dict)


class ForeignClient(Protocol):
    def services(self) -> set[str]: ...

    def methods(self, service: str) -> set[str]: ...

    def ask(
        self, method: str, request: Mapping[str, Any], request_id: str = "", deadline_s: float = _CALL_S
    ) -> Answer:
        """`method`: package.Service/Method."""
        ...


def find_grpcurl() -> Path | None:
    """The one on the PATH, else one that is built with Go once and kept; None where there is neither. Skips
    the test that asks where Go cannot build it: that says something of this machine only.
    """
    if (there := shutil.which("grpcurl")) is not None:
        return Path(there)
    go = shutil.which("go")
    if go is None:
        return None
    folder = cache_dir() / "go" / GRPCURL_MODULE.rpartition("@")[2]
    built = folder / "grpcurl"
    if not built.exists():
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw", "CGO_ENABLED": "0"}
        command = [go, *_BUILD, GRPCURL_MODULE]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=_BUILD_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"grpcurl cannot be built: {error}")
        if done.returncode != 0 or not built.exists():
            said = done.stderr.strip().splitlines()
            pytest.skip(f"grpcurl cannot be built: {said[-1] if said else 'go says nothing'}")
    return built


class Grpcurl:
    def __init__(self, program: Path, address: str) -> None:
        self._program = program
        self._address = address

    def services(self) -> set[str]:
        return set(self._run("list").stdout.split())

    def methods(self, service: str) -> set[str]:
        return {line.rpartition(".")[2] for line in self._run("list", service).stdout.split()}

    def ask(
        self, method: str, request: Mapping[str, Any], request_id: str = "", deadline_s: float = _CALL_S
    ) -> Answer:
        named = ["-H", f"x-request-id: {request_id}"] if request_id else []
        done = self._run(
            method,
            before=["-format-error", "-max-time", str(deadline_s), *named, "-d", json.dumps(request)],
            check=False,
        )
        messages = [_camel(each) for each in _documents(done.stdout)]
        if done.returncode == 0:
            return Answer(0, messages)
        if "{" not in done.stderr and "deadline" in done.stderr.lower():
            # Its deadline came before it had a connection.
            return Answer(_DEADLINE_EXCEEDED, messages, done.stderr)
        error = json.loads(done.stderr[done.stderr.index("{") :])
        return Answer(error["code"], messages, error["message"], _by_type(_camel(error.get("details", []))))

    def trailers(self, method: str, request: Mapping[str, Any], request_id: str) -> str:
        """What it prints of a call's trailing metadata."""
        before = ["-v", "-H", f"x-request-id: {request_id}", "-d", json.dumps(request)]
        return str(self._run(method, before=before).stdout).partition("Response trailers received:")[2]

    def run_examples(self, page: Path, table: str) -> int:
        """Runs the commands of a page's shell blocks, for this server and table; returns how many."""
        text = page.read_text(encoding="utf-8")
        lines = [line for block in _SHELL.findall(text) for line in block.splitlines()]
        commands = [line for line in lines if line.startswith("grpcurl ")]
        for line in commands:
            words = shlex.split(
                line.replace("127.0.0.1:7411", self._address).replace('"orders"', f'"{table}"')
            )
            words[0] = str(self._program)
            done = subprocess.run(words, capture_output=True, text=True, timeout=2 * _CALL_S, check=False)
            assert done.returncode == 0, f"{line}\n{done.stderr}"
        return len(commands)

    def _run(self, *command: str, before: list[str] | None = None, check: bool = True) -> Any:
        whole = [str(self._program), "-plaintext", *(before or []), self._address, *command]
        done = subprocess.run(whole, capture_output=True, text=True, timeout=2 * _CALL_S, check=False)
        assert not check or done.returncode == 0, done.stderr
        return done


class Reflected:
    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._database = ProtoReflectionDescriptorDatabase(channel)
        self._pool = DescriptorPool(self._database)

    def services(self) -> set[str]:
        return set(self._database.get_services())

    def methods(self, service: str) -> set[str]:
        return set(self._pool.FindServiceByName(service).methods_by_name)

    def ask(
        self, method: str, request: Mapping[str, Any], request_id: str = "", deadline_s: float = _CALL_S
    ) -> Answer:
        service, _, name = method.partition("/")
        described = self._pool.FindServiceByName(service).methods_by_name[name]
        answers = GetMessageClass(described.output_type)
        channel = self._channel
        make: Any = channel.unary_stream if described.server_streaming else channel.unary_unary
        if described.client_streaming:
            make = channel.stream_stream
        call: Any = make(
            f"/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answers.FromString,
        )
        message = ParseDict(dict(request), GetMessageClass(described.input_type)())
        how = {"timeout": deadline_s, "metadata": [("x-request-id", request_id)] if request_id else []}
        messages: list[dict[str, Any]] = []
        try:
            answer = call(iter([message]) if described.client_streaming else message, **how)
            for each in answer if described.server_streaming else [answer]:
                messages.append(MessageToDict(each))
        except grpc.RpcError as error:
            told: Any = error
            status = rpc_status.from_call(told)
            details = [] if status is None else MessageToDict(status).get("details", [])
            return Answer(told.code().value[0], messages, told.details(), _by_type(details))
        return Answer(0, messages)


def _camel(found: Any) -> Any:
    """Names as protobuf's JSON has them: grpcurl prints those of the proto file, as the reflected files lack
    the others. Keys of maps change along.
    """
    if isinstance(found, list):
        return [_camel(each) for each in found]
    if not isinstance(found, dict):
        return found
    named = {_UNDERSCORE.sub(lambda part: part[1].upper(), key): each for key, each in found.items()}
    return {key: _camel(each) for key, each in named.items()}


def _by_type(details: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["@type"].rpartition(".")[2]: each for each in details}


def _documents(text: str) -> list[dict[str, Any]]:
    """JSON documents one after the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while (text := text[at:].lstrip()) != "":
        document, at = decoder.raw_decode(text)
        found.append(document)
    return found
