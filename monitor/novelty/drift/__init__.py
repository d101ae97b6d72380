"""Shift of known classes: told apart from novelty, explained, and learnt."""
