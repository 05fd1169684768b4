"""Tasks: what a model is asked, how its answer is shown, and how it is judged."""
