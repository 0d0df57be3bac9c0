"""Which commit's code makes a recording."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tidemark import commit_coordinator


def product_commit() -> str:
    """The last commit that changed the product. Raises RuntimeError when it was changed since."""
    root = Path(commit_coordinator.__file__).parents[3]

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments, "--", "libs", "services", "proto"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    if changed := git("status", "--porcelain"):
        raise RuntimeError(f"commit what was changed first: {changed}")
    return git("log", "-1", "--format=%H")
