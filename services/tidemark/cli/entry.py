"""Where the command `tidemark` begins: Ctrl-C while its parts are loaded ends it as it ends a command."""

from __future__ import annotations

import sys


def main() -> int:
    """Runs one command; returns its exit code."""
    try:
        # Loading takes longer than many a command: it belongs inside.
        from tidemark.cli.main import main as run_command

        return run_command()
    except KeyboardInterrupt:
        sys.stderr.write("tidemark: interrupted\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
