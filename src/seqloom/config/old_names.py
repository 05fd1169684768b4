"""Names that earlier versions wrote into config, data, metrics and events files, and the new ones.

>>> renamed({"kind": "training", "rate": 0.01, "length": {"kind": "symbols", "count": 9}})
{'kind': 'training', 'lr': 0.01, 'duration': {'kind': 'token-count', 'tokens': 9}}
"""

from collections.abc import Collection
from typing import Any

from seqloom.errors import did_you_mean

KINDS = {"inverse-root": "inverse-sqrt", "symbols": "token-count"}  # old tag: new tag

_TOKENIZER = {"unicode": "normalize", "lower": "lowercase"}
_DECODING = {"longest": "max_new_tokens", "repetition": "repetition_penalty"}
_SMOOTHING = {"smoothing": "label_smoothing"}
_SCHEDULE = {"warm_up": "warmup"}
_ADAM = {"epsilon": "eps", "decay": "weight_decay"}
_ROWS = {"rows": "batch_rows", "length": "row_length"}

KEYS: dict[str, dict[str, str]] = {  # by the tag in the file: old key, new key
    "training": {
        "length": "duration",
        "feed": "batching",
        "optimiser": "optimizer",
        "rate": "lr",
        "clip": "clip_norm",
        "pieces": "accumulate",
        "keep": "keep_checkpoints",
        "average": "ema",
        "average_last": "average_checkpoints",
        "report_every": "log_every",
    },
    "sgd": {"decay": "weight_decay"},
    "adam": _ADAM,
    "adamw": _ADAM,
    "newton": {"strengths": "l2"},
    "constant": _SCHEDULE,
    "linear": _SCHEDULE,
    "cosine": _SCHEDULE,
    "inverse-root": _SCHEDULE,
    "plateau": _SCHEDULE,
    "epochs": {"count": "epochs"},
    "steps": {"count": "steps"},
    "symbols": {"count": "tokens"},
    "seconds": {"count": "seconds"},
    "by-length": {"budget": "batch_tokens"},
    "streams": _ROWS,
    "packs": _ROWS,
    "encoding": {"longest": "max_length", "too_long": "overlong", "vectors": "word_vectors"},
    "vector-file": {"words": "limit"},
    "bad-rows": {"skip": "skip_bad_rows", "share": "max_bad_rows"},
    "column": {"column": "split_column"},
    "random": {"dev": "dev_size", "test": "test_size", "seed": "split_seed"},
    "fold": {"seed": "split_seed"},
    "words": {
        **_TOKENIZER,
        "limit": "vocab_size",
        "least": "min_count",
        "split": "word_split",
        "or_lower": "lowercase_fallback",
        "letters": "keep_characters",
    },
    "characters": {**_TOKENIZER, "limit": "vocab_size", "least": "min_count"},
    "bytes": _TOKENIZER,
    "bpe": {**_TOKENIZER, "limit": "vocab_size"},
    "unigram": {**_TOKENIZER, "limit": "vocab_size"},
    "wordpiece": {**_TOKENIZER, "longest_word": "max_word_length"},
    "greedy": _DECODING,
    "sample": {**_DECODING, "count": "num_samples"},
    "beam": {**_DECODING, "width": "beam_size", "best": "n_best"},
    "class": _SMOOTHING,
    "scores": _SMOOTHING,
    "next-token": _SMOOTHING,
    "tokens": {"symbol_dropout": "token_dropout"},
    "spelled": {"letters": "char_encoder"},
    "embedder": {"rows_at_once": "micro_batch"},
    "space": {"rate": "lr", "batch": "batch_tokens", "warm_up": "warmup", "decay": "weight_decay"},
}
VALUES: dict[tuple[str, str], dict[str, str]] = {  # by tag and old key: old value, new value
    ("encoding", "too_long"): {"cut": "truncate", "refuse": "error"},
}
# Tables that may omit their tag, because this key allows only one kind.
UNTAGGED = {
    "training": "training",
    "encoding": "encoding",
    "bad_rows": "bad-rows",
    "vectors": "vector-file",
    "word_vectors": "vector-file",
}


def renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Return the settings in `data` under the names of this version; `data` itself is not changed.

    Args:
        data: a nested table from TOML or JSON. The `kind` of each table names its type.

    Returns:
        An equal copy if every name is current.
    """
    return _table(data, "")


def _table(data: dict[str, Any], under: str) -> dict[str, Any]:
    kind = data.get("kind", UNTAGGED.get(under))
    if not isinstance(kind, str):
        kind = ""
    keys = KEYS.get(kind, {})
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = keys.get(key, key)
        if name in data and name != key:  # given under both names: the reader rejects the old one
            name = key
        changed = VALUES.get((kind, key), {})
        found[name] = changed.get(value, value) if isinstance(value, str) else _value(value, key)
    if kind in KINDS and "kind" in data:
        found["kind"] = KINDS[kind]
    return found


def _value(value: Any, under: str) -> Any:
    if isinstance(value, dict):
        return _table(value, under)
    return [_value(one, under) for one in value] if isinstance(value, list) else value


def renamed_facts(data: dict[str, Any]) -> dict[str, Any]:
    """The facts in data.json under the names of this version.

    >>> renamed_facts({"split": {"rule": {"kind": "fold", "seed": 0}}, "said": ["labels: 2"]})
    {'split': {'rule': {'kind': 'fold', 'split_seed': 0}}, 'messages': ['labels: 2']}
    """
    keys = {} if "messages" in data else {"said": "messages"}
    return {keys.get(key, key): _value(value, key) if key == "split" else value for key, value in data.items()}


# Old values of options: old value, new value.
OPTION_VALUES = {
    "class": "softmax",  # --head
    "cut": "truncate",  # --overlong
    "refuse": "error",
    "inverse-root": "inverse-sqrt",  # --schedule
    "symbols": "tokens",  # --budget
    "integrated": "integrated_gradients",  # --method
}


def name_fix(name: str, known: Collection[str], *, ordered: bool = False) -> str:
    """The fix for an unknown value of an option: its new name, else the nearest known one or the list.

    >>> name_fix("class", ["softmax", "crf"]), name_fix("sofmax", ["softmax", "crf"])
    ("it is called 'softmax' now", "did you mean 'softmax'?")
    """
    new = OPTION_VALUES.get(name)
    return f"it is called '{new}' now" if new in known else did_you_mean(name, known, ordered=ordered)


# The lines of metrics.jsonl and events.jsonl: by kind, old key and new key.
_SPEED = {"symbols_per_second": "tokens_per_second", "waited": "data_wait"}
LINE_KINDS = {"begun": "start", "pace": "speed", "saved": "checkpoint", "ended": "end"}
LINE_KEYS: dict[str, dict[str, str]] = {
    "step": {"share": "progress", "rate": "lr", "norm": "grad_norm", "largest": "max_grad_norm", "symbols": "tokens"},
    "start": {"trained": "trainable", "said": "messages"},
    "speed": _SPEED,
    "end": {"why": "reason", "pace": "speed"},
}
_SAMPLE = {"said": "predicted", "true": "expected", "right": "correct"}


def renamed_line(record: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl or events.jsonl under the names of this version.

    >>> renamed_line({"kind": "step", "step": 10, "rate": 0.01, "norm": 1.5})
    {'kind': 'step', 'step': 10, 'lr': 0.01, 'grad_norm': 1.5}
    """
    kind = LINE_KINDS.get(record.get("kind", ""), record.get("kind"))
    keys = LINE_KEYS.get(str(kind), {})
    found = {keys.get(key, key): value for key, value in record.items()}
    if "kind" in found:
        found["kind"] = kind
    if kind == "validation" and isinstance(samples := found.get("samples"), list):
        found["samples"] = [{_SAMPLE.get(key, key): value for key, value in one.items()} for one in samples]
    if kind == "end" and isinstance(speed := found.get("speed"), dict):
        found["speed"] = {_SPEED.get(key, key): value for key, value in speed.items()}
    return found
