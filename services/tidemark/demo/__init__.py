"""The demo: the flights of 2013 as a stream, a model of the table they must become, and the view of it."""
