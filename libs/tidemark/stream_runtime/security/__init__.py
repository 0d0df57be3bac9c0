"""Access and encryption of our services: roles, tokens, certificates. The section `security:` configures
them.

`server_security` makes what a service needs, `client_security` what a caller needs.
"""
