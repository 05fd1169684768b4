"""Names of layers for readers: module paths are for programs.

encoder.layers.0.mixer.back     layer_title: encoder layer 0 backward     short_name: layer 0 back
"""

from collections.abc import Iterable

LAYERS = ".layers."
WORDS = {"ahead": "forward", "back": "backward", "mixer": ""}


def layer_title(path: str) -> str:
    """A layer in words, for titles and sentences; what is not inside a layer keeps its name.

    >>> layer_title("encoder.layers.0.mixer"), layer_title("encoder.layers.0.mixer.back"), layer_title("pooler")
    ('encoder layer 0', 'encoder layer 0 backward', 'pooler')
    """
    stack, found, rest = path.partition(LAYERS)
    if not found:
        return path
    number, *parts = rest.split(".")
    return " ".join(
        filter(None, (stack.replace(".", " "), "layer", number, *(WORDS.get(part, part) for part in parts)))
    )


def chosen_title(path: str, paths: Iterable[str]) -> str:
    """A layer in words, with its number among these paths: the number that the option `layer` accepts.

    >>> chosen_title("encoder.layers.1.mixer", ["encoder.layers.0.mixer", "encoder.layers.1.mixer"])
    'encoder layer 1'
    >>> chosen_title("decoder.layers.1.mixer", ["decoder.layers.1.mixer"])
    'layer 0 (decoder layer 1)'
    """
    number = list(dict.fromkeys(paths)).index(path)
    title = layer_title(path)
    return title if title.endswith(f"layer {number}") else f"layer {number} ({title})"


def short_name(path: str) -> str:
    """A short name of a layer, for labels.

    >>> short_name("encoder.layers.0.mixer.back"), short_name("decoder.layers.1.output")
    ('layer 0 back', 'layer 1 output')
    """
    parts = [part for part in path.split(".")[1:] if part != "mixer"]
    return " ".join("layer" if part == "layers" else part for part in parts)
