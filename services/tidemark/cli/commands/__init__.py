"""One module per group of commands: each adds its parsers, and imports its work when it is called."""
