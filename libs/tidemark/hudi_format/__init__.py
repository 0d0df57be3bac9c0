"""Reads and writes the Hudi table format (table version 9, timeline layout 2) natively, without an engine."""
