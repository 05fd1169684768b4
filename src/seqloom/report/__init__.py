"""Documents, figures and tables, and their renderers."""
