"""Reading, counting, keeping and replaying dead letters."""
