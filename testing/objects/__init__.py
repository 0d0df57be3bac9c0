"""A store of objects in memory, without folders and renames, and the publication port over it."""
