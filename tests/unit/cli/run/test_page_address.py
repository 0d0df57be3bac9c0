"""Where the page of a run is: where the settings say, or beside a table that was there first."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random

from tidemark.cli.run.supervisor import page_address, page_url
from tidemark.config import Address, ServicesConfig
from tidemark.config.security_model import SecurityConfig, TlsConfig


def test_a_free_address_is_kept_and_off_is_off() -> None:
    said: list[str] = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = Address("127.0.0.1", probe.getsockname()[1])
    assert page_address(ServicesConfig(web=free), Random(1), said.append) == free
    assert page_address(ServicesConfig(web=None), Random(1), said.append) is None
    assert said == []


def test_a_second_table_gets_a_port_of_its_own_and_says_so() -> None:
    said: list[str] = []
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Address("127.0.0.1", other.getsockname()[1])
        found = page_address(ServicesConfig(web=taken), Random(1), said.append)
        asked = page_address(ServicesConfig(web=Address("127.0.0.1", 0)), Random(2), said.append)
    assert found is not None
    assert found.port not in (0, taken.port)
    assert len(said) == 1
    assert str(taken) in said[0]
    assert str(found) in said[0]
    assert asked is not None
    assert asked.port > 0


def test_the_printed_address_is_encrypted_where_the_page_is() -> None:
    page, plain = Address("127.0.0.1", 7413), SecurityConfig()
    here, anywhere = ServicesConfig(), ServicesConfig(bind="0.0.0.0")
    secured = SecurityConfig(tls=TlsConfig(certificate=Path("c"), key=Path("k")))
    assert page_url(page, here, plain) == page_url(page, here, secured) == "http://127.0.0.1:7413"
    assert page_url(page, anywhere, secured) == "https://127.0.0.1:7413"
    assert page_url(page, anywhere, plain) == "http://127.0.0.1:7413"
