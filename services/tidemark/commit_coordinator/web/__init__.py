"""The page that the coordinator serves: read-only, for people on call and for a first look."""
