"""One thread per test process, the cores belong to pytest-xdist; and the device that SEQLOOM_TEST_DEVICE names."""

import os

import torch

torch.set_num_threads(1)
if device := os.environ.get("SEQLOOM_TEST_DEVICE"):
    torch.set_default_device(device)
