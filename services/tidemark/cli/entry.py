"""The entry point of the command `tidemark`. Ctrl-C ends it without a traceback even while modules load."""

from __future__ import annotations

import sys

from tidemark.stream_runtime.platform.loading import without_collections


def main() -> int:
    """Runs one command; returns its exit code."""
    try:
        # Importing the commands takes longer than running many of them, so it belongs into the `try`.
        with without_collections():
            from tidemark.cli.main import main as run_command

        return run_command()
    except KeyboardInterrupt:
        sys.stderr.write("tidemark: interrupted\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
