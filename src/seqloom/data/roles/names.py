"""What columns are usually called, in lower case, and the parts that a column of parts names."""

from seqloom.data.schema import Part

# In the order in which they are looked for.
PAIRS = (
    ("premise", "hypothesis"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
)
TRIPLES = (("anchor", "positive", "negative"), ("query", "positive", "negative"))
RELATED = (("anchor", "positive"), ("query", "positive"), ("query", "answer"), ("question", "answer"))
TEXTS = ("text", "sentence", "review", "question", "content", "comment", "message", "tweet", "utterance", "document")
WORDS = ("tokens", "words")
ARRAYS = ("vectors", "frames", "picture", "image")
SOURCES = ("source", "src", "input")
TRANSLATIONS = ("target", "tgt", "translation", "output", "caption")
TAGS = ("tags", "ner_tags", "pos_tags", "upos", "labels")
LABELS = ("label", "labels", "class", "category", "sentiment", "intent", "topic", "target", "y")
NUMBERS = ("score", "rating", "similarity", "number", "numbers", "value", "series")
SERIES = ("series",)
SCORES = ("score", "similarity", "rating")
IDS = ("id", "_id", "guid", "idx")
SPLITS = ("split", "part", "fold", "set")
PART_NAMES: dict[str, Part] = {
    "train": "train",
    "dev": "dev",
    "valid": "dev",
    "validation": "dev",
    "val": "dev",
    "test": "test",
}
