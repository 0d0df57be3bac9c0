"""Which Tidemark runs: what `tidemark --version` and the page show. `pyproject.toml` alone says it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """Of the installed distribution."""
    try:
        return version("tidemark")
    except PackageNotFoundError:
        return "(not installed)"
