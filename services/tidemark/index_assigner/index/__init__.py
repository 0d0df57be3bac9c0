"""The tiered index of one assigner process: uncommitted entries, hot cache, RocksDB, metadata table."""
