"""One module per group of commands. A module adds the parsers, and imports what does the work when a command
runs.
"""
