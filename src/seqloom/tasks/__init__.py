"""Tasks: what a model predicts, how it is trained for that, and how it is evaluated."""
