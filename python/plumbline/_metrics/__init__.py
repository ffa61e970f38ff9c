"""Numbers that the trainer logs, next to those that the watch measures (health/metric-truth)."""
