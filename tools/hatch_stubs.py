"""Makes the stubs of proto/ when the package is built: they are not in git, and everything imports them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class StubsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before every build: of a wheel, and of an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raises RuntimeError with protoc's own words when a proto file does not compile."""
        root = Path(self.root)
        # The build has neither our checkout nor its tools on the import path.
        sys.path.insert(0, str(root / "tools"))
        generate_stubs = importlib.import_module("generate_stubs")
        generate_stubs.generate(root / "proto", root / "stubs")
