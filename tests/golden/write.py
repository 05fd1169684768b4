"""Writes the golden bundle of the present format, once: `python tests/golden/write.py`.

Every released format keeps one here for ever. A new format gets a new folder; what is there is never written again,
because the claim is that a model of long ago still gives the numbers that it gave then.
"""

import json
from pathlib import Path

import torch

from seqloom import recipes
from seqloom.bundle import FORMAT, Bundle, built, bundle_files, read_bundle
from seqloom.config.inputs import TokensConfig
from seqloom.config.tokenizers import WordsConfig
from seqloom.data.kinds.text import TextInput
from seqloom.data.schema import Schema
from seqloom.files.disk import write_file
from seqloom.files.folders import commit_folder
from seqloom.metrics.calibration import Calibration
from seqloom.tasks.task import ModelSpec
from seqloom.text.tokenizer import fit

HERE = Path(__file__).parent
TEMPERATURE = 1.5
TEXTS = ["a good film", "not a bad film at all", "bad", "words nobody saw: a film"]


def logits(folder: Path, texts: list[str]) -> list[list[float]]:
    """The scores of a bundle for some texts."""
    bundle = read_bundle(folder)
    assert bundle.spec.tokenizer is not None
    inputs = TextInput().collate({"input": bundle.spec.tokenizer.encode(texts)})
    with torch.no_grad():
        scores: list[list[float]] = built(bundle)(inputs).tolist()
    return scores


def main() -> None:
    """Write the bundle and its logits; refused if they are there."""
    tokenizer = fit(WordsConfig(lowercase=True), ["A good film.", "A bad film!", "Not good at all", "not bad"])
    inputs = TokensConfig(vocab_size=tokenizer.vocab_size)
    config = recipes.classifier("transformer", inputs=inputs, num_classes=2, size="nano")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(FORMAT)
        weights = config.build().state_dict()
    spec = ModelSpec(Schema("text", "label", ("bad", "good")), tokenizer, None, calibration=Calibration(TEMPERATURE))
    folder = HERE / f"bundle-{FORMAT}"
    commit_folder(folder, bundle_files(Bundle(config, spec, weights, {"golden": FORMAT}), "# A golden bundle\n"))
    frozen = {"texts": TEXTS, "logits": logits(folder, TEXTS)}
    write_file(HERE / f"bundle-{FORMAT}.json", json.dumps(frozen, indent=1) + "\n")


if __name__ == "__main__":
    main()
