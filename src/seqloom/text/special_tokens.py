"""The special tokens. They have the first ids of every vocabulary, and no text can produce them.

They are not part of the tokenizer's own vocabulary: piece n there is token n + COUNT here. So "<pad>" or "[MASK]" in a
text is ordinary text.
"""

PAD, UNKNOWN, BEGIN, END, MASK, SEPARATOR = range(6)
COUNT = 6
NAMES = ("<pad>", "<unknown>", "<begin>", "<end>", "<mask>", "<separator>")  # for display; never matched in a text
