"""The steps of the running monitor, without the cluster that spreads them."""
