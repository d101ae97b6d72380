"""What the operator sees: the state of the store as status, metrics, messages and webhooks."""
