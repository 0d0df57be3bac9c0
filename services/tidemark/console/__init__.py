"""Code that the commands share: output, errors, confirmation, arguments, the client of the admin API."""
