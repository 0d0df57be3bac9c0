"""`tidemark doctor`: checks everything that a table needs, and says what to do where something is missing."""
