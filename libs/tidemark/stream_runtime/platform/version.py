"""The version of Tidemark that runs, for `tidemark --version` and the page. It is set in `pyproject.toml`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_version() -> str:
    """The version of the installed distribution; "(not installed)" without one."""
    try:
        return version("tidemark")
    except PackageNotFoundError:
        return "(not installed)"
