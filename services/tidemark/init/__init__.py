"""`tidemark init`: writes a first configuration, from a sample of records or from an existing table."""
