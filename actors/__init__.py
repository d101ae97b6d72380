"""The monitor on Ray: thin actors, and the coordinator that moves batches through them."""
