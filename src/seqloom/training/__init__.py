"""Training: one loop for every family and task, a generator of reports that whoever wants to may look at."""
