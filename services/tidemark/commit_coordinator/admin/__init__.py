"""The parts of `tidemark.admin.v1.Admin`; `admin_service` puts them together."""
