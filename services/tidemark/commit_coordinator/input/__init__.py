"""What the coordinator knows of the input topics: growth, starts, ends, age, stopped lanes, skips."""
