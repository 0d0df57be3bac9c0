"""Freezes names that are new: `python -m tests.unit.frozen_names`. It takes none away."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from tests.unit.frozen_names.frozen import add
from tests.unit.frozen_names.gathered import gathered

with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
    for kind, names in gathered(Path(folder), patched).items():
        sys.stdout.write(f"{kind}: {len(names)} names, {add(kind, names)} of them new\n")
