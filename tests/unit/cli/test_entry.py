"""The very beginning of the command: what is loaded, and Ctrl-C while its parts still are."""

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

_ASKING = """
import sys
import tidemark.cli.dead_letters
import tidemark.cli.main
import tidemark.console.admin_client
sys.exit(", ".join({"confluent_kafka", "numpy", "pandas", "pyarrow"} & set(sys.modules)) or 0)
"""


def test_commands_that_ask_a_coordinator_load_no_library_of_columns_or_kafka() -> None:
    done = subprocess.run([sys.executable, "-c", _ASKING], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_interrupt_while_loading_ends_without_a_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "tidemark: interrupted\n")
