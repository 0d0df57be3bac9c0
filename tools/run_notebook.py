"""Runs a notebook from its first cell to its last, as Jupyter would: `make notebook`.

Usage: python tools/run_notebook.py NOTEBOOK [OUTPUT]. With OUTPUT the notebook with what it printed is
written there; the exit code is 1 when a cell failed. The kernel is this very Python. It is reached by files
and not by ports: Jupyter picks five free ports long before the kernel binds them, and on a busy machine
another process takes one of them meanwhile.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

_CELL_S: Final = 900
_KERNEL_S: Final = 300
_ROOT: Final = Path(__file__).resolve().parent.parent
# As `tidemark doctor` says it.
_JAVA_HOME: Final = re.compile(r"(?<=of this machine: )/\S+")


def run_notebook(source: Path, target: Path | None) -> str | None:
    """None, or the error of the cell that failed. What was printed is written in either case."""
    notebook: Any = nbformat.read(source, as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook, timeout=_CELL_S, startup_timeout=_KERNEL_S, kernel_name="python3", record_timing=False
    )
    # A folder of its own, because the path of a socket's file has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="tidemark-kernel-") as sockets:
        kernel = client.create_kernel_manager()
        kernel.transport, kernel.ip = "ipc", f"{sockets}/kernel"
        return _executed(client, target)


def _executed(client: NotebookClient, target: Path | None) -> str | None:
    try:
        client.execute()
    except CellExecutionError as error:
        return str(error)
    finally:
        if target is not None:
            client.nb.metadata.pop("language_info", None)
            for cell in client.nb.cells:
                _make_neutral(cell)
            nbformat.write(client.nb, target)  # type: ignore[no-untyped-call]
    return None


def _make_neutral(cell: Any) -> None:
    """Leaves out what went to stderr, and where this checkout, home and Java lie."""
    if "outputs" not in cell:
        return
    cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    for each in cell.outputs:
        if "text" in each:
            text = "".join(each.text).replace(str(_ROOT), "~/tidemark").replace(f"{Path.home()}/", "~/")
            each.text = _JAVA_HOME.sub("JAVA_HOME", text)


def main(arguments: list[str]) -> int:
    """See the module."""
    if not 1 <= len(arguments) <= 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    problem = run_notebook(Path(arguments[0]), Path(arguments[1]) if len(arguments) > 1 else None)
    if problem is not None:
        sys.stderr.write(f"{problem}\n")
    return 0 if problem is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
