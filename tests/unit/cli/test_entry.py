"""The very beginning of the command: Ctrl-C while its parts are still being loaded."""

from __future__ import annotations

import subprocess
import sys

_INTERRUPTED = """
import sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "tidemark.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from tidemark.cli.entry import main
sys.exit(main())
"""


def test_interrupt_while_loading_ends_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "tidemark: interrupted\n")
