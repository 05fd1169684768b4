"""The cost of inspecting attention: one row of every head of a large encoder at 4,096 tokens, beside a forward pass.

python benchmarks/inspection.py              both cases, each in its own process, and the difference
python benchmarks/inspection.py inspect      one case as JSON: seconds, seconds spent inspecting, peak memory
python benchmarks/inspection.py forward
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, cast

import torch

from seqloom.config.heads import ClassHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.mixers import AttentionConfig
from seqloom.config.models import SequenceModelConfig
from seqloom.config.stacks import BlockConfig, EncoderConfig, FeedForwardConfig
from seqloom.inspect.attention_weights import AttentionLayer, AttentionRows, heard, layers_of
from seqloom.inspect.readings import scores
from seqloom.inspect.subject import Reading, Side, Subject, numbered
from seqloom.nn.types import Padded

LENGTH, LAYERS, HEADS, WIDTH = 4_096, 12, 12, 768
VOCABULARY = 1_000
MAX_SECONDS, MAX_MIB = 2.0, 256.0


def subject() -> Subject:
    """Return an untrained encoder of this size."""
    torch.manual_seed(0)
    block = BlockConfig(mixer=AttentionConfig(num_heads=HEADS), feed_forward=FeedForwardConfig(hidden=4 * WIDTH))
    encoder = EncoderConfig(
        input=TokensConfig(vocab_size=VOCABULARY), width=WIDTH, layers=(block,), repeat=LAYERS, position="rotary"
    )
    config = SequenceModelConfig(encoder=encoder, head=ClassHeadConfig(num_classes=2))
    return Subject(cast(Any, None), config, config.build().eval(), cast(Any, None))


def reading() -> Reading:
    """Return an input of random tokens."""
    tokens = torch.randint(9, VOCABULARY, (1, LENGTH))
    return Reading("", Padded.of(tokens), (Side("input", numbered(LENGTH), "encoder"),), ("answer",))


def measure(case: str) -> dict[str, float]:
    """Return the seconds of a pass, the seconds spent inspecting, and the peak memory of this process."""
    asked, given, inspecting = subject(), reading(), 0.0

    def look(_: AttentionLayer, rows: AttentionRows) -> torch.Tensor:
        nonlocal inspecting
        start = time.perf_counter()
        row = slice(LENGTH // 2, LENGTH // 2 + 1)
        found = torch.cat([rows.weights(head, row) for head in range(rows.num_heads)])
        inspecting += time.perf_counter() - start
        return found

    start = time.perf_counter()
    if case == "inspect":
        found = heard(asked, given, layers_of(asked, given), look)
        assert len(found) == LAYERS and all(bool((rows.sum(dim=1) - 1).abs().max() < 1e-4) for rows in found)
    else:
        with torch.no_grad():
            scores(asked, given.inputs)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "inspecting": inspecting, "peak_mib": peak}


def main(arguments: Sequence[str] = ()) -> None:
    """Run one case, or both and compare."""
    if arguments:
        print(json.dumps(measure(arguments[0])))
        return
    cases = {}
    for case in ("forward", "inspect"):
        run = subprocess.run([sys.executable, __file__, case], check=True, capture_output=True, text=True)
        cases[case] = json.loads(run.stdout)
        print(f"{case:8} {cases[case]['seconds']:8.2f} s {cases[case]['peak_mib']:9.0f} MiB")
    beyond = cases["inspect"]["peak_mib"] - cases["forward"]["peak_mib"]
    limits = f"the limit is {MAX_SECONDS:g} s and {MAX_MIB:g} MiB"
    print(f"one row of {LAYERS} x {HEADS} heads: {cases['inspect']['inspecting']:.3f} s and {beyond:.0f} MiB; {limits}")


if __name__ == "__main__":
    main(sys.argv[1:])
