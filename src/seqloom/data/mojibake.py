"""Repair text that was encoded as UTF-8, decoded as Windows-1252 or Latin-1, and encoded again: "cafÃ©" is "café".

A character beyond ASCII has two to four bytes in UTF-8. Decoded byte by byte, they become a *lead* (a letter such as
Ã, Â or â) and one to three *trails* (mostly signs and quotes). Such a sequence may also be correct text: "CAFÉ”" ends
with an É and a closing quote, which would decode to "CAFɔ". So one sequence alone counts as damage only if it is

    Ã or Â and a trail        Latin letters and signs, by far the most frequent damage; not a quote or a dash that
                              follows a word in capitals: "IRMÃ”"
    â and two fitting trails  quotes, dashes, the euro sign and others
    ðŸ and two trails         emoji
    with a C1 control         never part of correct text

and so do two sequences in a row, as in Greek, Cyrillic or Chinese. If one is certain and the complete text is valid
UTF-8 after the way back, the complete text is repaired, otherwise only the certain sequences. Text that was damaged
twice is repaired twice.
"""

import re

# The bytes 0x80 to 0x9F, decoded as Windows-1252; the five that it does not define are read as in Latin-1.
SIGNS = {
    bytes([byte]).decode("cp1252"): byte for byte in range(0x80, 0xA0) if byte not in (0x81, 0x8D, 0x8F, 0x90, 0x9D)
}
BYTES = {ord(sign): chr(byte) for sign, byte in SIGNS.items()}  # from Windows-1252 to Latin-1
TRAIL = "\u0080-\u00bf" + "".join(map(re.escape, SIGNS))
CONTROL = "\u0080-\u009f"
CLOSING = "\u2026\u2018\u2019\u201c\u201d\u2013\u2014\u203a\u00bb"  # what may follow a word in capitals
ANY = f"(?:[\u00c2-\u00df][{TRAIL}]|[\u00e0-\u00ef][{TRAIL}]{{2}}|[\u00f0-\u00f4][{TRAIL}]{{3}})"
CERTAIN = re.compile(
    f"{ANY}{{2,}}"
    f"|\u00c3(?![{CLOSING}](?!\\w))[{TRAIL}]|(?<![^\\W\\d_a-z])\u00c3[{CLOSING}]"
    f"|\u00c2[\u00a0-\u00ba\u00bc-\u00bf]|(?<![^\\W\\d_a-z])\u00c2\u00bb"
    f"|\u00e2[\u20ac\u0080\u201e\u0084\u201a\u0082\u2020\u0086][{TRAIL}]"
    f"|\u00f0[\u0178\u009f][{TRAIL}]{{2}}"
    f"|[\u00c2-\u00df][{CONTROL}]|[\u00e0-\u00ef](?:[{CONTROL}][{TRAIL}]|[{TRAIL}][{CONTROL}])"
)


def repaired(text: str) -> str:
    """Return the text with damaged sequences repaired; correct text is returned unchanged.

    >>> repaired("cafÃ© â€“ 20Â°C"), repaired("cafÃƒÂ©"), repaired("CAFÉ” and naïve")
    ('café – 20°C', 'café', 'CAFÉ” and naïve')
    """
    if text.isascii():
        return text
    while CERTAIN.search(text):
        whole = _decoded(text)
        better = CERTAIN.sub(lambda found: _decoded(found[0]) or found[0], text) if whole is None else whole
        if better == text:
            break
        text = better  # shorter than before, so this ends
    return text


def _decoded(text: str) -> str | None:
    """Return the text that was damaged like this, or None if there is none."""
    try:
        return text.translate(BYTES).encode("latin-1").decode("utf-8")
    except UnicodeError:
        return None
