"""Neural networks: shapes, layers and models; `ops` is the mathematics and `mixers` the sequence layers."""
