"""The demo: the flights of 2013 as a stream, a model of the table that they must become, and the live
view.
"""
