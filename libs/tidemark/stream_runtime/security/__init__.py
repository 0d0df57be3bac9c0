"""Who may call what, and how calls travel: roles, tokens, certificates. Configured by `security:`.

`server_security` makes what a service needs, `client_security` what a caller needs.
"""
