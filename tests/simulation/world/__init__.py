"""The whole protocol under seeded faults, driven by the product's own decision code; see README.md."""
