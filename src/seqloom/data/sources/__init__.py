"""Known data sets by name."""
