"""The shuffle stage: input records become keyed Arrow batches by lane (ARCHITECTURE.md, "Shuffle")."""
