"""The index-assigner: decodes and shuffles input records, tags each with the file group of its key."""
