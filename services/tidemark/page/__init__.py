"""The page at `services.web`: read-only, for people on call and for a first look.

A client of the admin API, and of the table's files; the coordinator's process starts it (`open_page`) and is
asked through `sources.AdminCalls`. It knows no service: what it shows comes in as messages and plain values.
"""
