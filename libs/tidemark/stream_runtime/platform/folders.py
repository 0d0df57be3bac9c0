"""Where Tidemark keeps what it can make again: outside the checkout and outside every table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

CACHE_VARIABLE: Final = "TIDEMARK_CACHE_DIR"


def cache_dir(environment: Mapping[str, str] | None = None) -> Path:
    """`TIDEMARK_CACHE_DIR`, else `$XDG_CACHE_HOME/tidemark`, else `~/.cache/tidemark`. Not created here."""
    environment = os.environ if environment is None else environment
    if environment.get(CACHE_VARIABLE):
        return Path(environment[CACHE_VARIABLE]).absolute()
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "tidemark"
