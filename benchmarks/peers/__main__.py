"""Seqloom beside its peers on the CPU: `python -m benchmarks.peers [NAME ...]`, all whose peer is installed.

Peers are not dependencies of Seqloom. Install those that you want to compare with beside it:

    pip install transformers pytorch-crf spacy fasttext ctranslate2
"""

import subprocess
import sys

from benchmarks.peers.harness import installed

# The peer's modules, by benchmark.
PEERS: dict[str, tuple[str, ...]] = {
    "recurrent": (),
    "packing": (),
    "tables": (),
    "crf": ("torchcrf",),
    "gpt": ("transformers",),
    "encoder": ("transformers",),
    "translation": ("transformers",),
    "bag": ("fasttext",),
    "tagger": ("spacy",),
}


def main(arguments: list[str] | None = None) -> None:
    """Run the named benchmarks, or all."""
    for name in arguments or PEERS:
        if name not in PEERS:
            sys.exit(f"there is no benchmark '{name}'; there are {', '.join(PEERS)}")
        if not installed(*PEERS[name]):
            print(f"\n{name}: not measured, {' and '.join(PEERS[name])} not installed")
            continue
        subprocess.run([sys.executable, "-m", f"benchmarks.peers.{name}"], check=True)  # each with its own memory


if __name__ == "__main__":
    main(sys.argv[1:])
