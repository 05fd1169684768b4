"""The mathematics, without parameters: a plain version that is the specification, and fast ones that equal it."""
