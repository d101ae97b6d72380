"""When people are asked: evidence in a pool, over pools, and its false-alarm rate."""
