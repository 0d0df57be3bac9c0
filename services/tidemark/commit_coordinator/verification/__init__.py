"""Verifying the table beside the epochs: when, in which process, with which verdict."""
