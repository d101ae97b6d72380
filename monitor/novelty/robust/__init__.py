"""The preset ``robust``: verdicts from several opinions, labels spread over a graph."""
