"""Damaged files, made by a seed: what every reader of files must answer with a typed error, in bounded
time."""
