"""Training of a BiLSTM-CRF tagger against spaCy's blank NER, in batches of about 1,000 words: words per second and F1.

Sentences are made of common words and of names of four kinds. The ending of a name and the word before it often tell
its kind; a third of the names is new each time. Both sides read words and their spelling, see the same sentences in one
epoch, in turns of some batches, and are scored on the same dev set. Times include making a batch of the sentences.
"""

import random
import time
from collections import Counter

import msgspec
import numpy as np
import spacy
import torch
from benchmarks.peers.harness import Asked, table
from spacy.training import Example, iob_to_biluo
from spacy.util import minibatch

from seqloom import recipes
from seqloom.config.heads import CrfHeadConfig
from seqloom.config.inputs import SpelledConfig
from seqloom.config.training import AdamWConfig, TrainingConfig
from seqloom.nn.types import Batch, Padded, Spelled
from seqloom.text.special_tokens import COUNT, UNKNOWN
from seqloom.training.devices import Alone, choose_device
from seqloom.training.state import TrainingState
from seqloom.training.step import Update

SENTENCES, DEV, BATCH, TURNS = 4_000, 1_000, 70, 8
KINDS = ("PER", "LOC", "ORG", "MISC")
LABELS = ("O", *(f"{side}-{kind}" for kind in KINDS for side in "BI"))
RATE = 5e-3
SYLLABLES = tuple(a + b for a in "bdfgklmnprst" for b in "aeiou")
ENDINGS = {"PER": ("son", "ova", "ez"), "LOC": ("burg", "stan", "ville"), "ORG": ("corp", "bank", "tech")}
ENDINGS |= {"MISC": ("ish", "ese", "cup")}
CUES = {"PER": ("mr", "said"), "LOC": ("in", "near"), "ORG": ("at", "shares"), "MISC": ("the", "a")}

Sentence = tuple[list[str], list[str]]


def names(draws: random.Random, kind: str) -> str:
    """Return a new name; in one of five the ending is that of another kind."""
    ending = draws.choice(ENDINGS[kind if draws.random() < 0.8 else draws.choice(KINDS)])
    return "".join(draws.choices(SYLLABLES, k=draws.randint(1, 2))).title() + ending


def sentences(count: int, seed: int) -> list[Sentence]:
    """Return words and tags; a name has one to three words."""
    fixed, draws, found = random.Random(0), random.Random(seed), list[Sentence]()
    known = {kind: [names(fixed, kind) for _ in range(400)] for kind in KINDS}
    common = ["".join(fixed.choices(SYLLABLES, k=fixed.randint(1, 3))) for _ in range(3_000)]
    for _ in range(count):
        words, tags = list[str](), list[str]()
        while len(words) < 13:
            if draws.random() < 0.18:
                kind = draws.choice(KINDS)
                if draws.random() < 0.5:
                    words.append(draws.choice(CUES[kind]))
                    tags.append("O")
                for place in range(draws.choice((1, 1, 2, 3))):
                    words.append(draws.choice(known[kind]) if draws.random() < 0.67 else names(draws, kind))
                    tags.append(f"{'I' if place else 'B'}-{kind}")
            words.append(common[int(draws.paretovariate(0.6)) % len(common)])
            tags.append("O")
        words[0] = words[0].capitalize()
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


class Encoder:
    """Makes batches of sentences: the number of each word, the most frequent first, and its letters."""

    def __init__(self, own: list[Sentence]) -> None:
        counts = Counter(word for words, _ in own for word in words)
        self.numbers = {word: place + COUNT for place, (word, _) in enumerate(counts.most_common())}
        self.size = len(self.numbers) + COUNT
        self.rare_from = COUNT + sum(count > 1 for count in counts.values())
        self.labels = {label: place for place, label in enumerate(LABELS)}

    def batch(self, some: list[Sentence]) -> Batch:
        """Return the sentences as a batch."""
        rows = [torch.tensor([self.numbers.get(word, UNKNOWN) for word in words]) for words, _ in some]
        spelled = [[word.encode() for word in words] for words, _ in some]
        letters = np.zeros((len(some), max(map(len, spelled)), max(len(word) for row in spelled for word in row)))
        letters = letters.astype(np.uint8)
        for place, row in enumerate(spelled):
            for number, word in enumerate(row):
                letters[place, number, : len(word)] = bytearray(word)
        tags = [torch.tensor([self.labels[tag] for tag in tags]) for _, tags in some]
        inputs = Spelled(Padded.stack(rows), torch.from_numpy(letters))
        return Batch(inputs, torch.nn.utils.rnn.pad_sequence(tags, batch_first=True))


def main() -> None:
    """Train both for an epoch in turns, and print speed and F1."""
    torch.manual_seed(0)
    own, dev = sentences(SENTENCES, 1), sentences(DEV, 2)
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
        return Example.from_dict(doc, {"entities": iob_to_biluo(sentence[1])})

    encoder = Encoder(own)
    inputs = SpelledConfig(vocab_size=encoder.size, rare_from=encoder.rare_from)
    config = recipes.tagger("bilstm", inputs=inputs, num_tags=len(LABELS), size="tiny")
    model = msgspec.structs.replace(config, head=CrfHeadConfig(labels=LABELS)).build()
    update = Update(Asked(), model, TrainingConfig(optimizer=AdamWConfig()), Alone(), choose_device("cpu"))
    state = TrainingState()

    def theirs(some: list[list[Sentence]]) -> None:
        for batch in some:
            nlp.update([example(one) for one in batch], sgd=optimizer, drop=0.1)

    def ours(some: list[list[Sentence]]) -> None:
        for batch in some:
            update.step(encoder.batch(batch), carried=False, run_state=state, lr=RATE)
            update.read()
            state.step += 1

    taken: dict[str, list[float]] = {"spaCy blank NER": [], "seqloom bilstm with characters and CRF": []}
    share = -(-len(batches) // TURNS)
    for start in range(0, len(batches), share):
        for name, run in zip(taken, (theirs, ours), strict=True):
            began = time.perf_counter()
            run(batches[start : start + share])
            taken[name].append(time.perf_counter() - began)
    title = f"tagger training, {words:,} words in {TURNS} turns"
    table(title, taken, unit="words", work=words / len(taken["spaCy blank NER"]))

    found = [
        {(span.start, span.end, span.label_) for span in ner(spacy.tokens.Doc(nlp.vocab, words=one)).ents}
        for one, _ in dev
    ]
    print(f"  spaCy: F1 {f1(found, expected):.4f}")
    model.eval()
    with torch.no_grad():
        tags = model.predict(encoder.batch(dev).inputs).tolist()
    mine = [spans([LABELS[tag] for tag in row[: len(one)]]) for row, (one, _) in zip(tags, dev, strict=True)]
    print(f"  seqloom: F1 {f1(mine, expected):.4f}")


if __name__ == "__main__":
    main()
