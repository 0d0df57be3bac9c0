"""Reading input topics: positions, lanes that stop, skips, and suspect lanes that are read apart."""
