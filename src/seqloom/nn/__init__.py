"""Neural networks: shapes, layers and models; `ops` holds the operators and `mixers` the sequence layers."""
