"""Pairs of texts: translation, and commands with the actions they mean."""

from collections.abc import Mapping

from seqloom.config.data import GivenSplit, RandomSplit, ReadingConfig
from seqloom.data.sources.source import Files, Source
from seqloom.data.sources.sums import file

_MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset"
_RAW = f"{_MULTI30K}/c9be912dc05a3ebf9ae5bb5f7f58c1791cda43ab/data/task1/raw"
_TOKENIZED = f"{_MULTI30K}/7bee46bc74186b4b6254603143610f730d40bf66/data/task1/tok"
_SCAN = "https://raw.githubusercontent.com/brendenlake/SCAN/c4b756cbc010d75c912f16c42c8f15dc6b7e6c8f"


def _raw(name: str, packed: str = "") -> Files:
    """The two sides of one part, English first."""
    sides = (f"{name}.en", f"{name}.de")
    return tuple(file(f"multi30k/{side}{packed}", f"{_RAW}/{side}.gz") for side in sides)


def _tokenized(name: str, packed: str = "") -> Files:
    sides = (f"{name}.lc.norm.tok.en", f"{name}.lc.norm.tok.de")
    return tuple(file(f"multi30k/tok/{side}{packed}", f"{_TOKENIZED}/{side}") for side in sides)


def _scan(folder: str, name: str) -> Mapping[str, Files]:
    names = {"train": f"tasks_train_{name}.txt", "test": f"tasks_test_{name}.txt"}
    return {part: (file(f"scan/{one}.xz", f"{_SCAN}/{folder}/{one}"),) for part, one in names.items()}


MULTI30K = Source(
    name="multi30k",
    description="Captions of pictures, English with German translations (task 1), raw text",
    licence="no licence file in the repository (captions derive from Flickr30k, distributed for research)",
    citation="Elliott, Frank, Sima'an and Specia (2016). Multi30K: Multilingual English-German Image Descriptions",
    origin="multi30k/dataset at a3d2e0d26b56",
    files={"train": _raw("train", ".xz"), "dev": _raw("val"), "test": _raw("test_2016_flickr")},
    reading=ReadingConfig(format="parallel"),
    task="translate",
    input=("source",),
    target=("target",),
    split=GivenSplit(),
)

MULTI30K_TOKENIZED = MULTI30K._replace(
    name="multi30k-tok",
    description="The same captions, lower-cased, normalised and tokenised by the distributors, as published BLEU wants",
    files={"train": _tokenized("train", ".xz"), "dev": _tokenized("val"), "test": _tokenized("test_2016_flickr")},
)

TATOEBA = Source(
    name="tatoeba_deu_eng",
    description="Short English sentences with their German translations, often several for one sentence",
    licence="CC-BY 2.0 (stated in the archive's _about.txt; attribution to tatoeba.org and the Anki compiler)",
    citation="Tatoeba (tatoeba.org), sentence pairs compiled for Anki, as of 2018-05-13",
    origin="an archive in rioyshky/translation at de48b7027f73",
    files={"train": (file("tatoeba_deu_eng/deu.txt.xz"),)},
    reading=ReadingConfig(format="text", template="{source}\t{target}"),
    task="translate",
    input=("source",),
    target=("target",),
    split=RandomSplit(group="source"),  # one English sentence never falls in two parts
)

SCAN_SIMPLE = Source(
    name="scan-simple",
    description="SCAN: commands to sequences of actions, divided at random",
    licence="BSD",
    citation="Lake and Baroni (2018). Generalization without Systematicity: On the Compositional Skills of "
    "Sequence-to-Sequence Recurrent Networks",
    origin="brendenlake/SCAN at c4b756cbc010",
    files=_scan("simple_split", "simple"),
    reading=ReadingConfig(format="text", template="IN: {source} OUT: {target}"),
    task="translate",
    input=("source",),
    target=("target",),
    split=RandomSplit(dev=0.1, test=0.0),
)

SCAN_LENGTH = SCAN_SIMPLE._replace(
    name="scan-length",
    description="SCAN: trained on short sequences of actions, tested on long ones",
    files=_scan("length_split", "length"),
)

# "jump" alone stands 1,467 times in the training file: drawn as one group, all of them could be taken from it.
SCAN_ADD_JUMP = SCAN_SIMPLE._replace(
    name="scan-addjump",
    description="SCAN: 'jump' is seen only by itself in training, and in longer commands in the test",
    files=_scan("add_prim_split", "addprim_jump"),
)
