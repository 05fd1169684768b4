"""The rows of the table of defaults: datasets, recipes, and the settings that are tried beside the defaults.

Options of a dataset say only where its files are and how to read them. Everything is scored on the dev set.

"lr x 3" and "lr / 3" are factors of the default for full batches. `train` lowers the default of attention models that
predict tokens if batches have less than 4,096 tokens; there, both rates are higher than their names say.
"""

from typing import NamedTuple

from seqloom.recipes.families import RECIPES, Size
from seqloom.training.learning_rate import Predicted, default_lr


class Dataset(NamedTuple):
    """A dataset and what is trained on it."""

    read: str  # arguments of `seqloom train`; {data} is the folder of datasets
    metric: str
    recipes: tuple[str, ...]
    predicted: Predicted = "sequence"
    lower_is_better: bool = False
    is_large: bool = False  # only the most important settings are tried


CLASSIFIERS = ("bag", "mlp", "cnn", "rnn", "gru", "lstm", "bilstm", "self-attention", "transformer", "encoder")
CLASSIFIERS += ("window", "sparse", "linear-attention")
TAGGERS = ("cnn", "rnn", "gru", "lstm", "bilstm", "self-attention", "transformer", "encoder")
TRANSLATORS = ("seq2seq", "seq2seq-dot", "seq2seq-bilinear", "seq2seq-additive", "transformer")
LANGUAGE_MODELS = ("cnn", "rnn", "gru", "lstm", "transformer", "gpt")
ATIS = "{data}/atis/train.tsv.xz --dev {data}/atis/valid.tsv --format tsv --no-header --input 2"
SCORED = "{data}/stsb/stsb-en-train.csv.xz --dev {data}/stsb/stsb-en-dev.csv --no-header --input 1 --input 2 --target 3"
LM = "--task lm --test-size 0%"

DATASETS: dict[str, Dataset] = {
    "trec": Dataset(
        '{data}/trec/train.txt.xz --template "{label}:{fine} {text}" --input text --target label --test-size 0%',
        "accuracy",
        CLASSIFIERS,
    ),
    "sst2": Dataset(
        '{data}/sst2/train.txt.xz --dev {data}/sst2/dev.txt --template "{label} {text}"', "accuracy", CLASSIFIERS
    ),
    "atis-intent": Dataset(f"{ATIS} --target 1 --task classify", "accuracy", CLASSIFIERS),
    "stsb-regress": Dataset(
        f"{SCORED} --task regress", "rmse", ("bag", "cnn", "bilstm", "transformer"), lower_is_better=True
    ),
    "stsb-embed": Dataset(f"{SCORED} --task embed", "pearson", ("bag", "cnn", "bilstm", "transformer")),
    "atis-slots": Dataset(f"{ATIS} --target 3 --task tag", "f1", TAGGERS, predicted="steps"),
    "wnut": Dataset("{data}/wnut17/train.conll --dev {data}/wnut17/dev.conll", "f1", TAGGERS, predicted="steps"),
    "ewt": Dataset(
        "{data}/ud_english_ewt/en_ewt-ud-train.conllu.xz --dev {data}/ud_english_ewt/en_ewt-ud-dev.conllu.xz"
        " --target upos",
        "accuracy",
        TAGGERS,
        predicted="steps",
        is_large=True,
    ),
    "multi30k": Dataset(
        "{data}/multi30k/train.en.xz {data}/multi30k/train.de.xz --dev {data}/multi30k/val.en --dev"
        " {data}/multi30k/val.de --format parallel",
        "bleu",
        TRANSLATORS,
        predicted="tokens",
        is_large=True,
    ),
    "scan": Dataset(
        '{data}/scan/tasks_train_simple.txt.xz --template "IN: {input} OUT: {target}" --input input --target target'
        " --task translate --test-size 0% --metric exact_match",
        "exact_match",
        TRANSLATORS,
        predicted="tokens",
        is_large=True,
    ),
    "shakespeare": Dataset(
        f"{{data}}/tinyshakespeare/input.txt.xz {LM} --tokenizer characters",
        "perplexity",
        LANGUAGE_MODELS,
        predicted="tokens",
        lower_is_better=True,
        is_large=True,
    ),
    "ptb": Dataset(
        "{data}/ptb/ptb.train.txt.xz --dev {data}/ptb/ptb.valid.txt.xz --task lm",
        "perplexity",
        LANGUAGE_MODELS,
        predicted="tokens",
        lower_is_better=True,
        is_large=True,
    ),
}

MAIN = ("default", "lr x 3", "lr x 2", "lr / 3", "dropout 0.1", "dropout 0.3")


def settings(dataset: Dataset, recipe: str, size: Size = "small") -> dict[str, str]:
    """The settings that are tried: a name, and arguments of `seqloom train`. The first is the default of this size."""
    lr = default_lr(recipe, size, dataset.predicted)
    tried = {
        "default": "",
        "lr x 3": f"--lr {3 * lr:g}",
        "lr x 2": f"--lr {2 * lr:g}",
        "lr / 3": f"--lr {lr / 3:g}",
        "dropout 0.1": "--dropout 0.1",
        "dropout 0.3": "--dropout 0.3",
        "dropout 0": "--dropout 0",
        "dropout 0.5": "--dropout 0.5",
        "longer": "--epochs 60 --patience 10",
        "batch 1,024": "--batch-tokens 1024",
        "batch 4,096": "--batch-tokens 4096",
        "weight decay 0.1": "--weight-decay 0.1",
    }
    if dataset.predicted == "steps":
        tried |= {
            "other head": "--head softmax" if RECIPES[recipe].tags_by_crf else "--head crf",
            "case": "--no-lowercase",
        }
    if dataset.metric in ("accuracy", "f1"):
        tried["smoothing 0.1"] = "--label-smoothing 0.1"
    if dataset.metric == "bleu":
        tried["smoothing 0"] = "--label-smoothing 0"
    return {name: tried[name] for name in MAIN} if dataset.is_large else tried
