"""Compaction, clean, archival and rollback beside the epochs: what all kinds share, and their handlers."""
