"""The Hudi table format (table version 9, timeline layout 2): reading and writing it natively, without an
engine.
"""
