"""Bad configurations as people, programs and attackers write them, and the words that refuse each.

The table is read by people: every message says what was asked, what was found, and what to do. Importing it must not
import torch.
"""

import copy
import json
from typing import Any, NamedTuple

CLASSIFIER: dict[str, Any] = {
    "kind": "sequence-model",
    "encoder": {
        "kind": "encoder",
        "width": 8,
        "input": {"kind": "tokens", "vocab_size": 11},
        "layers": [{"kind": "block", "mixer": {"kind": "attention", "num_heads": 2}}],
    },
    "head": {"kind": "class", "num_classes": 3},
}
TAGGER: dict[str, Any] = {**CLASSIFIER, "kind": "element-model", "head": {"kind": "crf", "labels": ["O", "B-X"]}}
LANGUAGE: dict[str, Any] = {
    "kind": "language-model",
    "decoder": {**CLASSIFIER["encoder"], "kind": "decoder"},
    "head": {"kind": "next-token", "vocab_size": 11},
}
TRANSLATOR: dict[str, Any] = {
    "kind": "encoder-decoder",
    "encoder": CLASSIFIER["encoder"],
    "decoder": {
        "kind": "conditioned-decoder",
        "width": 8,
        "input": {"kind": "tokens", "vocab_size": 11},
        "layers": [{"kind": "decoder-block", "mixer": {"kind": "attention", "num_heads": 2}, "num_heads": 2}],
    },
    "head": {"kind": "next-token", "vocab_size": 11},
}
MIXER = "encoder.layers.0.mixer"


class Case(NamedTuple):
    """A bad text, how it is written, and the words that refuse it."""

    name: str
    text: str
    message: str
    form: str = "json"


def case(name: str, model: dict[str, Any], changes: dict[str, Any], message: str) -> Case:
    """A good model with some settings changed; a path of digits and dots leads to each."""
    data = copy.deepcopy(model)
    for path, value in changes.items():
        *way, last = (int(step) if step.isdigit() else step for step in path.split("."))
        holder: Any = data
        for step in way:
            holder = holder[step]
        if value is LEFT_OUT:
            del holder[last]
        else:
            holder[last] = value
    return Case(name, json.dumps(data), message)


LEFT_OUT = object()
LSTM, POOL = {"kind": "lstm"}, {"kind": "pool"}
LINEAR = {"kind": "linear-attention", "num_heads": 2}
PATCHES = {"kind": "patches", "height": 28, "width": 28, "patch": 4}
FILTERS = {"kind": "filters", "height": 8, "width": 8}

# what several messages have in common; <...> stands for the words of Python's own parsers
MIXERS = "attention, bidirectional, convolution, gru, linear-attention, lstm, pool, rnn"
MODELS = "element-model, embedder, encoder-decoder, language-model, sequence-model"
NOT_RELATIVE = "choose position 'sinusoidal', 'learned' or 'none'"
NARROWER = "use a smaller width, fewer layers or a smaller vocabulary"


CASES: list[Case] = [
    # code and foreign names
    case(
        "target",
        CLASSIFIER,
        {f"{MIXER}._target_": "torch.nn.LSTM"},
        "encoder.layers[0].mixer: unknown key '_target_'. Fix: choose from dropout, num_heads, pattern, score.",
    ),
    case(
        "target-for-kind",
        CLASSIFIER,
        {MIXER: {"_target_": "os.system", "command": "true"}},
        f"encoder.layers[0].mixer: missing key 'kind', found '_target_', 'command'. Fix: choose from {MIXERS}.",
    ),
    case(
        "class-path",
        CLASSIFIER,
        {"class_path": "os.system", "init_args": {}},
        "unknown key 'class_path'. Fix: choose from activation, dropout, encoder, head, hidden, pooling.",
    ),
    case(
        "auto-map",
        CLASSIFIER,
        {"encoder.auto_map": {"AutoModel": "evil.Model"}},
        "encoder: unknown key 'auto_map'. Fix: choose from dropout, dropout_mask, entry_norm, final_norm, input, "
        "input_scale, layers, max_length, norm_epsilon, position, position_join, repeat, width.",
    ),
    Case(
        "yaml-object",
        "!!python/object/apply:os.system ['true']\n",
        "not TOML: <...> (at line 1, column <...>). Fix: correct this line; TOML has lines of the form name = value.",
        "toml",
    ),
    Case(
        "yaml",
        "kind: sequence-model\nencoder: {}\n",
        "not TOML: <...> (at line 1, column <...>). Fix: correct this line; TOML has lines of the form name = value.",
        "toml",
    ),
    case(
        "dotted-kind",
        CLASSIFIER,
        {f"{MIXER}.kind": "torch.nn.LSTM"},
        f"encoder.layers[0].mixer: unknown kind 'torch.nn.LSTM'. Fix: choose from {MIXERS}.",
    ),
    case(
        "terminal-codes",
        CLASSIFIER,
        {"\x1b[2J\x1b]0;": 1},
        "unknown key '\\x1b[2J\\x1b]0;'. Fix: choose from activation, dropout, encoder, head, hidden, pooling.",
    ),
    case(
        "long-key",
        CLASSIFIER,
        {"k" * 100_000: 1},
        "unknown key 'kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk...'. Fix: choose from activation, dropout, "
        "encoder, head, hidden, pooling.",
    ),
    # names
    case(
        "unknown-key",
        CLASSIFIER,
        {f"{MIXER}.num_head": 2},
        "encoder.layers[0].mixer: unknown key 'num_head'. Did you mean 'num_heads'?",
    ),
    case("unknown-key-of-the-model", CLASSIFIER, {"hiden": [8]}, "unknown key 'hiden'. Did you mean 'hidden'?"),
    case(
        "unknown-key-nothing-near",
        CLASSIFIER,
        {"encoder.zzz": 1},
        "encoder: unknown key 'zzz'. Fix: choose from dropout, dropout_mask, entry_norm, final_norm, input, "
        "input_scale, layers, max_length, norm_epsilon, position, position_join, repeat, width.",
    ),
    case(
        "key-of-a-kind-without-settings",
        CLASSIFIER,
        {MIXER: {"kind": "lstm", "hidden": 8}},
        "encoder.layers[0].mixer: unknown key 'hidden'. Fix: choose from weight_dropout.",
    ),
    case(
        "unknown-kind",
        CLASSIFIER,
        {MIXER: {"kind": "lsmt"}},
        "encoder.layers[0].mixer: unknown kind 'lsmt'. Did you mean 'lstm'?",
    ),
    case(
        "unknown-kind-of-model",
        CLASSIFIER,
        {"kind": "sequence-modle"},
        "unknown kind 'sequence-modle'. Did you mean 'sequence-model'?",
    ),
    case(
        "unknown-name",
        CLASSIFIER,
        {"encoder.position": "rotery"},
        "encoder.position: unknown name 'rotery'. Did you mean 'rotary'?",
    ),
    case(
        "unknown-name-nothing-near",
        CLASSIFIER,
        {"pooling": "zzz"},
        "pooling: unknown name 'zzz'. Fix: choose from mean, sum, max, last, first, attention.",
    ),
    case(
        "number-for-a-name",
        CLASSIFIER,
        {"pooling": 3},
        "pooling: expected a name, found 3. Fix: choose from mean, sum, max, last, first, attention.",
    ),
    case(
        "number-for-a-kind",
        CLASSIFIER,
        {f"{MIXER}.kind": 3},
        f"encoder.layers[0].mixer: expected a name as 'kind', found 3. Fix: choose from {MIXERS}.",
    ),
    case(
        "missing-kind",
        CLASSIFIER,
        {"kind": LEFT_OUT},
        f"missing key 'kind', found 'encoder', 'head'. Fix: choose from {MODELS}.",
    ),
    case(
        "missing-kind-inside",
        CLASSIFIER,
        {MIXER: {}},
        f"encoder.layers[0].mixer: missing key 'kind', found no key. Fix: choose from {MIXERS}.",
    ),
    case(
        "missing-key",
        CLASSIFIER,
        {"encoder.width": LEFT_OUT},
        "encoder: missing key 'width'. Fix: add it: 'encoder' has no default for it.",
    ),
    case(
        "missing-table",
        CLASSIFIER,
        {"encoder": LEFT_OUT},
        "missing key 'encoder'. Fix: add it: 'sequence-model' has no default for it.",
    ),
    # numbers
    case(
        "width-of-a-billion",
        CLASSIFIER,
        {"encoder.width": 10**9},
        "encoder.width: expected a whole number from 1 to 65,536, found 1,000,000,000. Fix: use at most 65,536.",
    ),
    case(
        "repeat-of-a-million",
        CLASSIFIER,
        {"encoder.repeat": 10**6},
        "encoder.repeat: expected a whole number from 1 to 1,024, found 1,000,000. Fix: use at most 1,024.",
    ),
    case(
        "no-heads",
        CLASSIFIER,
        {f"{MIXER}.num_heads": 0},
        "encoder.layers[0].mixer.num_heads: expected a whole number from 1 to 1,024, found 0. Fix: use at least 1.",
    ),
    case(
        "negative-vocabulary",
        CLASSIFIER,
        {"encoder.input.vocab_size": -11},
        "encoder.input.vocab_size: expected a whole number from 1 to 16,777,216, found -11. Fix: use at least 1.",
    ),
    case(
        "negative-window",
        CLASSIFIER,
        {f"{MIXER}.pattern": {"kind": "window", "size": -1}},
        "encoder.layers[0].mixer.pattern.size: expected a whole number from 1 to 1,048,576, found -1. "
        "Fix: use at least 1.",
    ),
    case(
        "bool-for-int",
        CLASSIFIER,
        {"encoder.width": True},
        "encoder.width: expected a whole number from 1 to 65,536, found true. Fix: give a whole number.",
    ),
    case(
        "text-for-int",
        CLASSIFIER,
        {"encoder.width": "8"},
        "encoder.width: expected a whole number from 1 to 65,536, found the text '8'. Fix: write 8 without quotes.",
    ),
    case(
        "word-for-int",
        CLASSIFIER,
        {"encoder.width": "wide"},
        "encoder.width: expected a whole number from 1 to 65,536, found the text 'wide'. Fix: give a whole number.",
    ),
    case(
        "float-for-int",
        CLASSIFIER,
        {"encoder.width": 8.0},
        "encoder.width: expected a whole number from 1 to 65,536, found 8.0. Fix: write 8.",
    ),
    case(
        "fraction-for-int",
        CLASSIFIER,
        {"encoder.width": 8.5},
        "encoder.width: expected a whole number from 1 to 65,536, found 8.5. Fix: give a whole number.",
    ),
    case(
        "null-for-int",
        CLASSIFIER,
        {"encoder.width": None},
        "encoder.width: expected a whole number from 1 to 65,536, found null. Fix: give a whole number.",
    ),
    case(
        "table-for-int",
        CLASSIFIER,
        {"encoder.width": {"a": {"b": 1}}},
        "encoder.width: expected a whole number from 1 to 65,536, found a table. Fix: give a whole number.",
    ),
    Case(
        "date-for-int",
        "kind = 'embedder'\n[encoder]\nwidth = 1979-05-27\ninput = {kind = 'vectors', size = 2}",
        "encoder.width: expected a whole number from 1 to 65,536, found something of type date. Fix: give"
        " a whole number.",
        "toml",
    ),
    case(
        "one-class",
        CLASSIFIER,
        {"head.num_classes": 1},
        "head.num_classes: expected a whole number from 2 to 1,048,576, found 1. Fix: use at least 2.",
    ),
    case(
        "enormous-integer",
        CLASSIFIER,
        {"encoder.width": 10**4000},
        "encoder.width: expected a whole number from 1 to 65,536, found a number of 13,288 bits. Fix: "
        "use at most 65,536.",
    ),
    Case(
        "integer-beyond-python",
        json.dumps(CLASSIFIER).replace("8", "8" * 5000, 1),
        "a number has too many digits. Fix: give a smaller one.",
    ),
    Case(
        "integer-beyond-python-in-toml",
        f"width = {'8' * 5000}",
        "a number has too many digits. Fix: give a smaller one.",
        "toml",
    ),
    Case(
        "enormous-hexadecimal",
        f"kind = 'embedder'\n[encoder]\nwidth = 0x{'f' * 5000}\ninput = {{}}",
        "encoder.width: expected a whole number from 1 to 65,536, found a number of 20,000 bits. Fix: "
        "use at most 65,536.",
        "toml",
    ),
    Case(
        "1e400",
        json.dumps(CLASSIFIER).replace('"width": 8', '"width": 1e400'),
        "encoder.width: expected a whole number from 1 to 65,536, found inf. Fix: give a whole number.",
    ),
    case(
        "dropout-1",
        CLASSIFIER,
        {"encoder.dropout": 1.0},
        "encoder.dropout: expected a number of at least 0 and below 1, found 1.0. Fix: use less than 1.0.",
    ),
    case(
        "dropout-negative",
        CLASSIFIER,
        {"encoder.dropout": -0.1},
        "encoder.dropout: expected a number of at least 0 and below 1, found -0.1. Fix: use at least 0.0.",
    ),
    case(
        "dropout-NaN",
        CLASSIFIER,
        {"encoder.dropout": float("nan")},
        "encoder.dropout: expected a number of at least 0 and below 1, found nan. Fix: give a number in this range.",
    ),
    case(
        "dropout-Infinity",
        CLASSIFIER,
        {"encoder.dropout": float("inf")},
        "encoder.dropout: expected a number of at least 0 and below 1, found inf. Fix: use less than 1.0.",
    ),
    case(
        "dropout-text",
        CLASSIFIER,
        {"encoder.dropout": "0.1"},
        "encoder.dropout: expected a number of at least 0 and below 1, found the text '0.1'. Fix: write "
        "0.1 without quotes.",
    ),
    case(
        "dropout-true",
        CLASSIFIER,
        {"encoder.dropout": True},
        "encoder.dropout: expected a number of at least 0 and below 1, found true. Fix: give a number.",
    ),
    Case(
        "dropout-1e400-in-toml",
        "kind = 'embedder'\n[encoder]\nwidth = 2\ndropout = 1e400\ninput = {kind = 'vectors', size = 2}",
        "encoder.dropout: expected a number of at least 0 and below 1, found inf. Fix: use less than 1.0.",
        "toml",
    ),
    Case(
        "dropout-nan-in-toml",
        "kind = 'embedder'\n[encoder]\nwidth = 2\ndropout = nan\ninput = {kind = 'vectors', size = 2}",
        "encoder.dropout: expected a number of at least 0 and below 1, found nan. Fix: give a number in this range.",
        "toml",
    ),
    # forms
    Case(
        "empty-toml",
        "",
        "the configuration is empty. Fix: start from a recipe: seqloom recipes NAME > model.toml.",
        "toml",
    ),
    Case(
        "empty-json", " \n", "the configuration is empty. Fix: start from a recipe: seqloom recipes NAME > model.toml."
    ),
    Case("comment-only", "# nothing\n", f"missing key 'kind', found no key. Fix: choose from {MODELS}.", "toml"),
    Case("array", "[1, 2]", f"expected a table, found an array of 2. Fix: give one of kind {MODELS}."),
    Case("number", "3", f"expected a table, found 3. Fix: give one of kind {MODELS}."),
    case(
        "null-for-a-table",
        CLASSIFIER,
        {"encoder": None},
        "encoder: expected a table, found null. Fix: give one of kind encoder.",
    ),
    case(
        "null-for-a-mixer",
        CLASSIFIER,
        {MIXER: None},
        f"encoder.layers[0].mixer: expected a table, found null. Fix: give one of kind {MIXERS}.",
    ),
    case(
        "list-for-a-table",
        CLASSIFIER,
        {"encoder": [1, 2, 3]},
        "encoder: expected a table, found an array of 3. Fix: give one of kind encoder.",
    ),
    case(
        "table-for-a-list",
        CLASSIFIER,
        {"encoder.layers": {"kind": "block", "mixer": LSTM}},
        "encoder.layers: expected an array, found a table. Fix: write [[encoder.layers]], in double brackets.",
    ),
    case(
        "text-for-bool",
        LANGUAGE,
        {"head.tied": "no"},
        "head.tied: expected true or false, found the text 'no'. Fix: write true or false.",
    ),
    case(
        "number-for-bool",
        LANGUAGE,
        {"head.tied": 1},
        "head.tied: expected true or false, found 1. Fix: write true or false.",
    ),
    case(
        "number-for-text",
        TAGGER,
        {"head.labels": ["O", 7]},
        "head.labels[1]: expected text, found 7. Fix: write it in quotes.",
    ),
    case(
        "half-a-character",
        TAGGER,
        {"head.labels": ["O", "\ud800"]},
        "head.labels[1]: '\\ud800' contains half of a surrogate pair. Fix: write the whole character.",
    ),
    case(
        "label-too-long",
        TAGGER,
        {"head.labels": ["O", "x" * 300]},
        "head.labels[1]: expected at most 256 characters, found 300. Fix: use a shorter name.",
    ),
    Case(
        "json-repeated-key",
        '{"kind": "embedder", "kind": "embedder"}',
        "the key 'kind' is given twice. Fix: leave one of them out.",
    ),
    Case(
        "toml-repeated-key",
        'kind = "embedder"\nkind = "embedder"\n',
        "not TOML: <...> (at line 2, column <...>). Fix: correct this line; TOML has lines of the form name = value.",
        "toml",
    ),
    Case(
        "json-syntax",
        '{"kind": "embedder",}',
        'not JSON: <...> (at line 1, column <...>). Fix: correct this place; JSON has the form {"name": value}.',
    ),
    Case("json-deep", "[" * 100_000, "it has too many nested levels. Fix: use fewer levels; a model has about six."),
    Case(
        "json-deep-tables",
        '{"encoder":' * 20_000,
        "it has too many nested levels. Fix: use fewer levels; a model has about six.",
    ),
    Case(
        "toml-deep-arrays",
        "a = " + "[" * 100_000,
        "it has too many nested levels. Fix: use fewer levels; a model has about six.",
        "toml",
    ),
    Case(
        "toml-deep-tables",
        "a = " + "{a = " * 50_000,
        "it has too many nested levels. Fix: use fewer levels; a model has about six.",
        "toml",
    ),
    Case(
        "toml-deep-key",
        ".".join(["a"] * 100_000) + " = 1",
        "line 1 has 99,999 dots; the limit is 256. Fix: use fewer levels, or write an array with one item per line.",
        "toml",
    ),
    Case(
        "toml-deep-header",
        "[" + ".".join(["a"] * 100_000) + "]",
        "line 1 has 99,999 dots; the limit is 256. Fix: use fewer levels, or write an array with one item per line.",
        "toml",
    ),
    Case(
        "json-repeated-late",
        "{" + "".join(f'"{number}": 1, ' for number in range(20_000)) + '"7": 1}',
        "the key '7' is given twice. Fix: leave one of them out.",
    ),
    case(
        "too-many-layers",
        CLASSIFIER,
        {"encoder.layers": [{"kind": "block", "mixer": POOL}] * 1025},
        "encoder.layers: expected at most 1,024 items, found 1,025. Fix: use fewer.",
    ),
    case(
        "too-many-repeated-layers",
        CLASSIFIER,
        {"encoder.layers": [{"mixer": POOL}] * 2, "encoder.repeat": 1000},
        "encoder: 2 layers repeated 1,000 times are 2,000 layers; the limit is 1,024. Fix: use a smaller repeat.",
    ),
    # contradictions
    case(
        "tied-vocabularies",
        LANGUAGE,
        {"head.vocab_size": 12},
        "the head has vocab_size 12, but the input to which it is tied has vocab_size 11. Fix: make them equal, or set "
        "tied = false in the head.",
    ),
    case(
        "tied-to-vectors",
        LANGUAGE,
        {"decoder.input": {"kind": "vectors", "size": 8}},
        "a tied head uses the embedding matrix of a 'tokens' input, but the input is 'vectors'. Fix: set tied = "
        "false in the head.",
    ),
    case(
        "tied-hidden-tokens",
        TAGGER,
        {"head": {"kind": "next-token", "vocab_size": 9}},
        "the head has vocab_size 9, but the input to which it is tied has vocab_size 11. Fix: make them equal, or set "
        "tied = false in the head.",
    ),
    case(
        "heads-and-width",
        CLASSIFIER,
        {f"{MIXER}.num_heads": 3},
        "encoder.layers[0].mixer: a width of 8 cannot be divided among 3 heads evenly. Fix: use num_heads = 2 or "
        "width = 9.",
    ),
    case(
        "more-heads-than-width",
        CLASSIFIER,
        {f"{MIXER}.num_heads": 64},
        "encoder.layers[0].mixer: a width of 8 cannot be divided among 64 heads evenly. Fix: use num_heads = 8 or "
        "width = 64.",
    ),
    case(
        "linear-heads-and-width",
        CLASSIFIER,
        {MIXER: LINEAR | {"num_heads": 3}},
        "encoder.layers[0].mixer: a width of 8 cannot be divided among 3 heads evenly. Fix: use num_heads = 2 or "
        "width = 9.",
    ),
    case(
        "cross-heads-and-width",
        TRANSLATOR,
        {"decoder.layers.0.num_heads": 5},
        "decoder.layers[0]: a width of 8 cannot be divided among 5 heads evenly. Fix: use num_heads = 4 or width = 10.",
    ),
    case(
        "odd-bidirectional",
        CLASSIFIER,
        {MIXER: {"kind": "bidirectional"}, "encoder.width": 9},
        "encoder.layers[0].mixer: a width of 9 cannot be divided evenly between two directions. Fix: use width = 10.",
    ),
    case(
        "odd-rotary",
        CLASSIFIER,
        {"encoder.width": 6, "encoder.position": "rotary"},
        "encoder.layers[0].mixer: a width of 6 cannot be divided among 2 heads into pairs, which rotary positions "
        "need. "
        "Fix: use num_heads = 1 or width = 8.",
    ),
    case(
        "kernel-sizes-and-width",
        CLASSIFIER,
        {MIXER: {"kind": "convolution", "kernel_sizes": [3, 4, 5]}},
        "encoder.layers[0].mixer: a width of 8 cannot be divided evenly among 3 kernel sizes. "
        "Fix: use width = 9, or another number of kernel sizes.",
    ),
    case(
        "no-kernel-sizes",
        CLASSIFIER,
        {MIXER: {"kind": "convolution", "kernel_sizes": []}},
        "encoder.layers[0].mixer: kernel_sizes is empty. Fix: give at least one, for example [3, 4, 5].",
    ),
    case(
        "far-dilation",
        CLASSIFIER,
        {MIXER: {"kind": "convolution", "kernel_sizes": [9], "dilation": 2**20}},
        "encoder.layers[0].mixer: a filter with kernel size 9 and dilation 1,048,576 covers 8,388,608 elements; the"
        " limit is 1,048,576. Fix: use a smaller dilation.",
    ),
    case(
        "rotary-additive",
        CLASSIFIER,
        {f"{MIXER}.score": "additive", "encoder.position": "rotary"},
        "encoder.layers[0].mixer: position 'rotary' with an attention score 'additive': rotating queries "
        "and keys makes a score relative only if it is their dot product. Fix: choose another score or "
        "position.",
    ),
    case(
        "rotary-bilinear",
        CLASSIFIER,
        {f"{MIXER}.score": "bilinear", "encoder.position": "rotary"},
        "encoder.layers[0].mixer: position 'rotary' with an attention score 'bilinear': the matrix "
        "between query and key does not commute with the rotation. Fix: choose another score or position.",
    ),
    case(
        "shaw-additive",
        CLASSIFIER,
        {f"{MIXER}.score": "additive", "encoder.position": "shaw"},
        "encoder.layers[0].mixer: position 'shaw' with an attention score 'additive': Shaw's key vectors "
        "need a dot product with the query, which an additive score does not have. Fix: choose another score"
        " or position.",
    ),
    case(
        "rotary-lstm",
        CLASSIFIER,
        {MIXER: LSTM, "encoder.position": "rotary"},
        "encoder.layers[0].mixer: position 'rotary' with the mixer 'lstm': relative positions change "
        f"attention scores, but 'lstm' has none. Fix: {NOT_RELATIVE}.",
    ),
    case(
        "alibi-pool",
        CLASSIFIER,
        {MIXER: POOL, "encoder.position": "alibi"},
        "encoder.layers[0].mixer: position 'alibi' with the mixer 'pool': relative positions change "
        f"attention scores, but 'pool' has none. Fix: {NOT_RELATIVE}.",
    ),
    case(
        "t5-linear-attention",
        CLASSIFIER,
        {MIXER: LINEAR, "encoder.position": "t5"},
        "encoder.layers[0].mixer: position 't5' with the mixer 'linear-attention': linear attention does not"
        f" compute attention scores, so no bias can be added to them. Fix: {NOT_RELATIVE}.",
    ),
    case(
        "rotary-linear-attention",
        CLASSIFIER,
        {MIXER: LINEAR, "encoder.position": "rotary"},
        "encoder.layers[0].mixer: position 'rotary' with the mixer 'linear-attention': rotation makes some "
        f"features negative, so the attention weights would not be a distribution. Fix: {NOT_RELATIVE}.",
    ),
    case(
        "shaw-seeded",
        TRANSLATOR,
        {"decoder.layers": [{"kind": "seeded", "mixer": LSTM}], "decoder.position": "shaw"},
        "decoder.layers[0].mixer: position 'shaw' with the mixer 'lstm': relative positions change "
        f"attention scores, but 'lstm' has none. Fix: {NOT_RELATIVE}.",
    ),
    case(
        "alibi-alignment",
        TRANSLATOR,
        {"decoder.layers": [{"kind": "alignment"}], "decoder.position": "alibi"},
        "decoder.layers[0]: position 'alibi' with 'alignment': positions in the source and in the target have no "
        "distance to each other."
        f" Fix: {NOT_RELATIVE}.",
    ),
    case(
        "relative-without-layers",
        CLASSIFIER,
        {"encoder.layers": [], "encoder.position": "alibi"},
        "encoder: position 'alibi' works inside attention layers, but there are no layers. Fix: choose position "
        "'sinusoidal' or 'learned', or give layers.",
    ),
    case(
        "relative-concatenated",
        CLASSIFIER,
        {"encoder.position": "t5", "encoder.position_join": "concatenate"},
        "encoder: position 't5' has no vectors that could be concatenated with the inputs. Fix: choose "
        "position 'sinusoidal' or 'learned', or leave position_join out.",
    ),
    case(
        "nothing-concatenated",
        CLASSIFIER,
        {"encoder.position_join": "concatenate"},
        "encoder: position 'none' has no vectors that could be concatenated with the inputs. Fix: choose "
        "position 'sinusoidal' or 'learned', or leave position_join out.",
    ),
    case(
        "bidirectional-decoder",
        LANGUAGE,
        {"decoder.layers.0.mixer": {"kind": "bidirectional"}},
        "decoder.layers[0].mixer: 'bidirectional' reads a sequence in both directions, so a decoder "
        "cannot use it. Fix: use 'lstm' without 'bidirectional' in a decoder.",
    ),
    case(
        "bidirectional-conditioned",
        TRANSLATOR,
        {"decoder.layers.0.mixer": {"kind": "bidirectional"}},
        "decoder.layers[0].mixer: 'bidirectional' is not possible here. Fix: choose from attention, "
        "convolution, gru, linear-attention, lstm, pool, rnn.",
    ),
    case(
        "picture-decoder",
        LANGUAGE,
        {"decoder.input": PATCHES},
        "decoder.input: 'patches' is not possible here. Fix: choose from ngrams, tokens, vectors.",
    ),
    case(
        "no-conditioned-layers",
        TRANSLATOR,
        {"decoder.layers": []},
        "decoder: a conditioned decoder needs layers, found none. Fix: give at least one.",
    ),
    case(
        "patches-do-not-tile",
        CLASSIFIER,
        {"encoder.input": PATCHES | {"patch": 5}},
        "encoder.input: a picture of 28 x 28 cannot be divided into patches of 5 x 5. Fix: use patch = 4, or "
        "crop the pictures.",
    ),
    case(
        "no-filters",
        CLASSIFIER,
        {"encoder.input": FILTERS | {"filters": []}},
        "encoder.input: filters is empty. Fix: give the number of filters of each layer, for example [32, 64].",
    ),
    case(
        "filters-do-not-fit",
        CLASSIFIER,
        {"encoder.input": FILTERS | {"kernel_size": 5}},
        "encoder.input: layer 2 of 2: filters of 5 x 5 are larger than its input of 2 x 2. "
        "Fix: use fewer layers or smaller filters.",
    ),
    case(
        "too-many-patches",
        CLASSIFIER,
        {"encoder.input": PATCHES, "encoder.position": "learned", "encoder.max_length": 48},
        "encoder: a picture becomes 49 elements, but there are only 48 learned positions. Fix: set max_length to 49.",
    ),
    case(
        "scores-of-another-width",
        CLASSIFIER,
        {"head": {"kind": "scores", "num_classes": 3}},
        "a 'scores' head needs width 3, one number per class, found width 8. Fix: use width = 3, or a 'class' head.",
    ),
    case(
        "one-label", TAGGER, {"head.labels": ["O"]}, "head.labels: expected two or more, found 1. Fix: name every tag."
    ),
    case(
        "repeated-label",
        TAGGER,
        {"head.labels": ["O", "B-X", "O"]},
        "head.labels: 'O' is given twice. Fix: name every tag once.",
    ),
    case(
        "label-outside-the-scheme",
        TAGGER,
        {"head.labels": ["O", "E-X"], "head.scheme": "bio"},
        "head.labels: 'E-X' does not fit the scheme 'bio', which expects O, B-TYPE, I-TYPE. Fix: rename "
        "the label, or choose the scheme 'none'.",
    ),
    case(
        "label-without-a-type",
        TAGGER,
        {"head.labels": ["O", "B-"], "head.scheme": "bio"},
        "head.labels: 'B-' does not fit the scheme 'bio', which expects O, B-TYPE, I-TYPE. Fix: rename "
        "the label, or choose the scheme 'none'.",
    ),
    case(
        "no-label-stands-alone",
        TAGGER,
        {"head.labels": ["B-X", "E-X"], "head.scheme": "bioes"},
        "head.labels: the scheme 'bioes' needs O or a label S-TYPE for spans of one element, but the labels have "
        "neither. Fix: "
        "add the label 'O', or choose the scheme 'none'.",
    ),
    case(
        "swiglu-after-pooling",
        CLASSIFIER,
        {"hidden": [4], "activation": "swiglu"},
        "activation 'swiglu' needs a gate, but the hidden layers after pooling have none. Fix: use activation 'gelu'.",
    ),
    case(
        "two-widths",
        TRANSLATOR,
        {"decoder.width": 16},
        "the encoder has width 8, but the decoder has width 16. Fix: give both the same width.",
    ),
    case(
        "head-of-another-model",
        CLASSIFIER,
        {"head": {"kind": "crf", "labels": ["O", "B"]}},
        "head: 'crf' is not possible here. "
        "Fix: choose from class, label-scores, labels, number, number-scores, scores.",
    ),
    case(
        "model-inside",
        CLASSIFIER,
        {"encoder": LANGUAGE},
        "encoder: 'language-model' is not possible here. Fix: choose from encoder.",
    ),
    # too large
    case(
        "enormous-encoder",
        CLASSIFIER,
        {"encoder.width": 65_536, "encoder.repeat": 1024},
        "encoder: this encoder would have 17,592,455,200,768 parameters, 70.4 TB in float32; the limit"
        f" is 17,179,869,184, 68.7 GB. Fix: {NARROWER}.",
    ),
    case(
        "enormous-vocabulary",
        CLASSIFIER,
        {"encoder.width": 65_536, "encoder.input.vocab_size": 2**24},
        "encoder: this encoder would have 1,116,691,759,104 parameters, 4.47 TB in float32; the limit "
        f"is 17,179,869,184, 68.7 GB. Fix: {NARROWER}.",
    ),
    case(
        "enormous-hidden-layers",
        CLASSIFIER,
        {"hidden": [65_536] * 8},
        "this model would have 30,066,016,635 parameters, 120 GB in float32; the limit is "
        f"17,179,869,184, 68.7 GB. Fix: {NARROWER}.",
    ),
    case(
        "enormous-picture",
        CLASSIFIER,
        {"encoder.input": {"kind": "flat", "height": 16384, "width": 16384, "channels": 64}},
        "encoder: this encoder would have 137,438,953,768 parameters, 550 GB in float32; the limit is "
        f"17,179,869,184, 68.7 GB. Fix: {NARROWER}.",
    ),
    case(
        "enormous-head",
        TAGGER,
        {"head": {"kind": "next-token", "vocab_size": 2**24, "tied": False}, "encoder.width": 2048},
        "this model would have 34,393,323,520 parameters, 138 GB in float32; the limit is "
        f"17,179,869,184, 68.7 GB. Fix: {NARROWER}.",
    ),
]
