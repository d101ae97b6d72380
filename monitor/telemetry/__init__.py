"""What the operator sees: the truth of the store as a status, as metrics and as webhooks."""
