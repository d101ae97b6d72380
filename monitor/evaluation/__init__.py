"""Evaluation: the paper's protocol, its baselines and ablations, and reports anyone can rerun."""
