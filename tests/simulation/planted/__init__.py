"""Planted bugs: the product with one rule of ARCHITECTURE.md broken, for which the simulation's checkers must
speak up. See `mutant` for what one is, `docs/simulation.md` for the table of all.
"""
