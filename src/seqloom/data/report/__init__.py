"""The data report: what is counted and found, and how it is shown in a terminal and on a page."""
