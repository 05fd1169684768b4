"""Training: one loop for every model family and task, which yields events that any consumer can read."""
