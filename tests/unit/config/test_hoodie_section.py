"""The `hoodie:` section: what has an effect, what is named as having none, what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidemark.config.hoodie_section import (
    HIVE_STYLE,
    TARGET,
    URL_ENCODE,
    HoodieOptionError,
    is_true,
    target_file_bytes,
    without_effect,
)


def section(**options: str) -> Any:
    return SimpleNamespace(file=Path("t.yaml"), hoodie={k.replace("__", "."): v for k, v in options.items()})


def test_the_target_size_is_hudis_default_or_what_is_said() -> None:
    assert target_file_bytes(section()) == 120 << 20
    assert target_file_bytes(section(hoodie__parquet__max__file__size="1000")) == 1_000


@pytest.mark.parametrize("text", ["120MB", "0", "-1", "", "1.5"])
def test_a_target_size_that_is_no_number_of_bytes_is_refused(text: str) -> None:
    with pytest.raises(HoodieOptionError, match=rf"t\.yaml: {TARGET}"):
        target_file_bytes(section(hoodie__parquet__max__file__size=text))


def test_options_without_an_effect_are_named() -> None:
    options = section(hoodie__upsert__shuffle__parallelism="2", hoodie__parquet__max__file__size="9")
    options.hoodie |= {HIVE_STYLE: "TRUE"}
    assert without_effect(options) == ["hoodie.upsert.shuffle.parallelism"]
    assert is_true(options, HIVE_STYLE)
    assert not is_true(options, URL_ENCODE)
