"""What all tests share: one thread each, fixed draws, and the device that SEQLOOM_TEST_DEVICE names."""

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)  # the cores belong to the processes of pytest-xdist

# `make test` draws the same examples every time, `make check` the first few of them; `make soak` draws fresh ones, and
# Hypothesis prints what failed.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("quick", settings.get_profile("fixed"), max_examples=20)
settings.register_profile("fresh", deadline=None, database=None, print_blob=True)
settings.load_profile("fresh" if os.environ.get("SEQLOOM_SOAK") == "1" else os.environ.get("SEQLOOM_DRAWS", "fixed"))

if device := os.environ.get("SEQLOOM_TEST_DEVICE"):
    torch.set_default_device(device)
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32 here
