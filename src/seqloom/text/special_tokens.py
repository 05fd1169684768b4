"""The special tokens: they have the first numbers of every vocabulary, and no text can produce them.

They are kept apart from the tokenizer's own vocabulary: a piece with the number n there has the number n + COUNT here.
So a text that holds "<pad>" or "[MASK]" is text like any other.
"""

PAD, UNKNOWN, BEGIN, END, MASK, SEPARATOR = range(6)
COUNT = 6
NAMES = ("<pad>", "<unknown>", "<begin>", "<end>", "<mask>", "<separator>")  # for people; never matched in a text
