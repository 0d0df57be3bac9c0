"""The web page at `services.web`: read-only, for people on call and for a first look.

It is a client of the admin API, and reads the table's files. The coordinator's process starts it
(`open_page`) and answers its calls (`sources.AdminCalls`). It imports no service: what it shows comes in as
messages and plain values.
"""
