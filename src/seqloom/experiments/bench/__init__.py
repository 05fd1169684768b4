"""How fast a trained model is on this machine: measurements with advice, and the kernels that its layers use."""
