"""The whole story in three minutes: a feed with new classes, and what the monitor makes of them."""
