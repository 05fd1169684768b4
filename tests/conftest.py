"""One thread per test process: the machine's cores belong to the processes of pytest-xdist."""

import torch

torch.set_num_threads(1)
