"""Time and memory of attention by length: window and linear attention grow linearly, full attention quadratically.

python benchmarks/long_sequences.py                 a table of all mixers and lengths
python benchmarks/long_sequences.py window 65536    one case as JSON: seconds and peak memory of the process
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import torch

from seqloom.config.mixers import AttentionConfig, LinearAttentionConfig, MixerConfig, WindowConfig
from seqloom.nn.ops.kernels import plainly
from seqloom.nn.types import Padded

MIXERS: dict[str, MixerConfig] = {
    "window": AttentionConfig(num_heads=4, pattern=WindowConfig(size=256)),
    "linear": LinearAttentionConfig(num_heads=4),
    "full": AttentionConfig(num_heads=4),
    "plain": AttentionConfig(num_heads=4),
}
LENGTHS = (4_096, 8_192, 16_384, 32_768, 65_536)


def measure(name: str, length: int, *, causal: bool = True, rounds: int = 1) -> dict[str, float]:
    """Return the seconds of a forward and backward pass (best of `rounds`) and the peak memory of this process."""
    torch.manual_seed(0)
    config = MIXERS[name]
    mixer = config.build_causal(64) if causal else config.build(64)
    seconds = []
    for _ in range(rounds):
        x = torch.randn(1, length, 64, requires_grad=True)
        start = time.perf_counter()
        if name == "plain":
            with plainly():
                mixer(Padded.of(x)).values.sum().backward()
        else:
            mixer(Padded.of(x)).values.sum().backward()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"length": length, "seconds": min(seconds), "peak_mib": peak}


def main(arguments: Sequence[str]) -> None:
    """Run one case, or all, each in its own process."""
    if arguments:
        name, length, *words = arguments
        rounds = 3 if "repeat" in words else 1
        print(json.dumps(measure(name, int(length), causal="both-sides" not in words, rounds=rounds)))
        return
    print(f"{'mixer':8} {'length':>7} {'seconds':>8} {'peak MiB':>9}")
    for name in MIXERS:
        for length in LENGTHS:
            if (name in ("full", "plain") and length > 16_384) or (name == "plain" and length > 8_192):
                continue  # quadratic: longer ones take too much time
            run = subprocess.run(
                [sys.executable, __file__, name, str(length), "repeat"], capture_output=True, text=True, check=True
            )
            found = json.loads(run.stdout)
            print(f"{name:8} {length:7} {found['seconds']:8.2f} {found['peak_mib']:9.0f}")


if __name__ == "__main__":
    main(sys.argv[1:])
