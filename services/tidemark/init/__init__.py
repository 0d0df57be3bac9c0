"""`tidemark init`: a first configuration, from a sample of records or from a table that is there."""
