"""Work on a table that no coordinator serves: recover, adopt, a new ledger."""
