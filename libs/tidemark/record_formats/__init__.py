"""Input formats: from the bytes of a batch of records to columns of the table's schema."""
