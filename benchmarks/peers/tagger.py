"""Training of a BiLSTM-CRF tagger against spaCy's blank NER, in batches of about 1,000 words: words per second and F1.

Sentences are made of templates with names of four kinds. Both sides see the same sentences in one epoch, in turns of
some batches, and are scored on the same dev set.
"""

import random
import time

import spacy
import torch
from benchmarks.peers.harness import Asked, table
from spacy.training import Example
from spacy.util import minibatch

from seqloom import recipes
from seqloom.config.heads import CrfHeadConfig
from seqloom.config.inputs import TokensConfig
from seqloom.config.training import AdamWConfig, TrainingConfig
from seqloom.nn.types import Batch, Padded
from seqloom.training.devices import Alone, choose_device
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

SENTENCES, DEV, BATCH, TURNS = 6_000, 1_000, 70, 8
KINDS = ("PER", "LOC", "ORG", "MISC")
LABELS = ("O", *(f"{side}-{kind}" for kind in KINDS for side in "BI"))
RATE = 5e-3

Sentence = tuple[list[str], list[str]]


def sentences(count: int, seed: int) -> list[Sentence]:
    """Return words and tags; a name has one to three words, and its first one tells its kind."""
    draws, found = random.Random(seed), list[Sentence]()
    for _ in range(count):
        words, tags = list[str](), list[str]()
        while len(words) < 14:
            if draws.random() < 0.25:
                kind = draws.choice(KINDS)
                words.append(f"{kind.title()}{draws.randrange(800)}")
                tags.append(f"B-{kind}")
                for _ in range(draws.randrange(3)):
                    words.append(f"Name{draws.randrange(800)}")
                    tags.append(f"I-{kind}")
            else:
                words.append(f"word{int(draws.paretovariate(0.6)) % 5_000}")
                tags.append("O")
        found.append((words, tags))
    return found


def spans(tags: list[str]) -> set[tuple[int, int, str]]:
    """Return the spans of BIO tags: first word, end, kind."""
    found, start = set[tuple[int, int, str]](), None
    for place, tag in enumerate([*tags, "O"]):
        if start is not None and not tag.startswith("I-"):
            found.add((start, place, tags[start][2:]))
            start = None
        if tag.startswith("B-"):
            start = place
    return found


def f1(predicted: list[set], expected: list[set]) -> float:
    """Return the F1 of spans."""
    hits = sum(len(one & other) for one, other in zip(predicted, expected, strict=True))
    return 2 * hits / max(1, sum(map(len, predicted)) + sum(map(len, expected)))


def main() -> None:
    """Train both for an epoch in turns, and print speed and F1."""
    torch.manual_seed(0)
    own, dev = sentences(SENTENCES, 0), sentences(DEV, 1)
    expected = [spans(tags) for _, tags in dev]
    batches = list(minibatch(own, BATCH))
    words = sum(len(one) for one, _ in own)

    nlp = spacy.blank("en")
    ner = nlp.add_pipe("ner")
    for kind in KINDS:
        ner.add_label(kind)
    optimizer = nlp.initialize()

    def example(sentence: Sentence) -> Example:
        doc = spacy.tokens.Doc(nlp.vocab, words=sentence[0])
        return Example.from_dict(doc, {"entities": [tag.replace("I-", "I-") for tag in sentence[1]]})

    numbers = {word: place + 5 for place, word in enumerate(dict.fromkeys(word for one, _ in own for word in one))}
    size, labels = len(numbers) + 5, {label: place for place, label in enumerate(LABELS)}
    config = recipes.tagger("bilstm", inputs=TokensConfig(vocab_size=size), num_tags=len(LABELS), size="tiny")
    model = replaced(config).build()
    update = Update(Asked(), model, TrainingConfig(optimizer=AdamWConfig()), Alone(), choose_device("cpu"))
    state = TrainingState()

    def encoded(some: list[Sentence]) -> Batch:
        rows = [torch.tensor([numbers.get(word, 1) for word in one]) for one, _ in some]
        tags = [torch.tensor([labels[tag] for tag in tags]) for _, tags in some]
        return Batch(Padded.stack(rows), torch.nn.utils.rnn.pad_sequence(tags, batch_first=True))

    taken: dict[str, list[float]] = {"spaCy blank NER": [], "seqloom bilstm with CRF": []}
    share = -(-len(batches) // TURNS)
    for start in range(0, len(batches), share):
        some = batches[start : start + share]
        began = time.perf_counter()
        for batch in some:
            nlp.update([example(one) for one in batch], sgd=optimizer, drop=0.1)
        middle = time.perf_counter()
        for batch in some:
            update.step(encoded(batch), carried=False, run_state=state, lr=RATE)
            update.read()
            state.step += 1
        taken["spaCy blank NER"].append(middle - began)
        taken["seqloom bilstm with CRF"].append(time.perf_counter() - middle)
    table(
        f"tagger training, {words:,} words in {TURNS} turns",
        taken,
        unit="words",
        work=words / len(taken["spaCy blank NER"]),
    )

    found = [
        {(span.start, span.end, span.label_) for span in ner(spacy.tokens.Doc(nlp.vocab, words=one)).ents}
        for one, _ in dev
    ]
    print(f"  spaCy: F1 {f1(found, expected):.4f}")
    model.eval()
    with torch.no_grad():
        tags = model.predict(encoded(dev).inputs).tolist()
    mine = [spans([LABELS[tag] for tag in row[: len(one)]]) for row, (one, _) in zip(tags, dev, strict=True)]
    print(f"  seqloom: F1 {f1(mine, expected):.4f}")


def replaced(config):
    """Return the tagger with a CRF."""
    import msgspec

    return msgspec.structs.replace(config, head=CrfHeadConfig(labels=LABELS))


if __name__ == "__main__":
    main()
