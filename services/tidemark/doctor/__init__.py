"""`tidemark doctor`: looks at everything that a table needs, and says what to do about what is missing."""
