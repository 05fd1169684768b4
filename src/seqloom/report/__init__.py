"""What is shown: figures, and the pages and tables they stand in."""
