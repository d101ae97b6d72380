"""Every method behind one interface: CONCLAD, its ablations, its ceiling and its baselines."""
