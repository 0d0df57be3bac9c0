"""The assign stage: keyed rows become data, index and tombstone batches (ARCHITECTURE.md, "Assign")."""
