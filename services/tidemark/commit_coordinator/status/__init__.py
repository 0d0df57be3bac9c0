"""What the coordinator shows: the status document, history, metrics, traces."""
