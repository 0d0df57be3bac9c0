"""Errors of run files. None of them changes an answer: the HFile is asked instead."""

from __future__ import annotations


class RunDamagedError(Exception):
    """A run file does not hold what was written."""


class RunTooLargeError(Exception):
    """A run would take more of the disk than there is room for."""
