"""The parts of `tidemark.admin.v1.Admin`; `admin.service` puts them together."""
