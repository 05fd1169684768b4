"""Metrics: counts that add up over examples, the figures made of their sums, and how sure one may be of these."""
