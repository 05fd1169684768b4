"""Tasks: the predictions of a model, its training, and its evaluation."""
