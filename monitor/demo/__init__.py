"""The whole story in three minutes: a feed with surprises, and what the monitor makes of them."""
