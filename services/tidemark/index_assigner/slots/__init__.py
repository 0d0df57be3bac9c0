"""Slots: the transaction loop that both stages run in, its lease, lanes and producer."""
