"""Number formatting: the one module that formats numbers, sizes, durations, shares and counts.

    number      0.9333   12,346   1.5e-5        share      25 %   3.1 %   <0.1 %
    size        900 B   25 MB   2.5 GB          interval   0.87 to 0.92
    duration    7.2 s   1 min 15 s   2 h 5 min  counted    1 row   4,500 rows
    rounded_duration    40 s   5 min   2 h

Pages, cards, terminal lines and messages all use these functions, so equal values look the same everywhere. The module
imports nothing from Seqloom, so every package can import it.
"""

DIGITS = 4  # significant digits
LARGEST = 1e15  # larger numbers use exponents
SMALLEST_SHARE = 0.0005  # smaller shares are not rounded to 0 %, nor their complements to 100 %
NOT_FINITE = "not finite"
UNKNOWN = "-"


def number(value: float | None) -> str:
    """Format a number with four significant digits; integers and numbers from 1,000 get commas.

    >>> number(0.98765), number(20.0), number(12345.6), number(1234567), number(0.000015)
    ('0.9877', '20', '12,346', '1,234,567', '1.5e-5')
    >>> number(None), number(float("nan"))
    ('-', 'not finite')
    """
    if value is None:
        return UNKNOWN
    if value != value or value in (float("inf"), -float("inf")):
        return NOT_FINITE
    short = f"{value + 0.0:.{DIGITS}g}"
    if (value == int(value) and abs(value) < LARGEST) or 1000 <= abs(float(short)) < LARGEST:
        return f"{value + 0.0:,.0f}"
    mantissa, mark, power = short.partition("e")
    return f"{mantissa}e{int(power)}" if mark else short


def signed(value: float) -> str:
    """Format a difference with its sign.

    >>> signed(0.0125), signed(-3.0), signed(0.0)
    ('+0.0125', '-3', '0')
    """
    return f"+{number(value)}" if value > 0 else number(value)


def interval(low: float | None, high: float | None) -> str:
    """Format the two ends of an interval.

    >>> interval(0.8766, 0.92)
    '0.8766 to 0.92'
    """
    return f"{number(low)} to {number(high)}"


def estimate(value: float | None, ends: tuple[float | None, float | None] | None) -> str:
    """Format a value with its interval, if there is one.

    >>> estimate(0.9, (0.8766, 0.92)), estimate(0.9, None)
    ('0.9 (0.8766 to 0.92)', '0.9')
    """
    return number(value) if ends is None else f"{number(value)} ({interval(*ends)})"


def probability(p: float | None) -> str:
    """Format a p-value with two digits; None gives an empty string.

    >>> probability(0.0321), probability(0.00001), probability(None)
    ('0.032', '<0.001', '')
    """
    return "" if p is None else "<0.001" if p < 0.001 else f"{p:.2g}"


def share(part: float, total: float = 1.0) -> str:
    """Format a share in percent; a nonzero share is never rounded to 0 %, nor an incomplete one to 100 %.

    >>> share(0.25), share(1, 32), share(1, 4500), share(4499, 4500), share(0, 0)
    ('25 %', '3.1 %', '<0.1 %', '>99.9 %', '0 %')
    """
    found = part / total if total else 0.0
    if 0 < found < SMALLEST_SHARE:
        return "<0.1 %"
    if 1 - SMALLEST_SHARE < found < 1:
        return ">99.9 %"
    return f"{round(100 * found, 1):g} %"


def part_of(count: int, total: int) -> str:
    """Format a count with its share of the total.

    >>> part_of(30, 120), part_of(0, 7)
    ('30 (25 %)', '0')
    """
    return f"{count:,} ({share(count, total)})" if count else "0"


def size(count: float) -> str:
    """Format a number of bytes with three digits, in B, kB, MB, GB or TB.

    >>> size(900), size(412_300_000), size(25_000_000), size(2.5e9), size(999_999)
    ('900 B', '412 MB', '25 MB', '2.5 GB', '1 MB')
    """
    units = ["B", "kB", "MB", "GB", "TB"]
    while float(f"{count:.3g}") >= 1000 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:,.0f} {units[0]}" if count >= 100 else f"{count:.3g} {units[0]}"


def duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> duration(0.0123), duration(7.25), duration(75), duration(7_500), duration(200_000)
    ('12.3 ms', '7.2 s', '1 min 15 s', '2 h 5 min', '2 d 7 h')
    """
    if 0 < seconds < 0.1:
        return f"{1000 * seconds:.3g} ms"
    if round(seconds, 1) < 60:
        return f"{round(seconds, 1):g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 24 else f"{hours // 24} d {hours % 24} h"


def rounded_duration(seconds: float) -> str:
    """Format an estimated duration in one unit.

    >>> rounded_duration(0.2), rounded_duration(38), rounded_duration(290), rounded_duration(9_000)
    ('1 s', '40 s', '5 min', '2.5 h')
    """
    if seconds < 55:
        return f"{max(1, round(seconds))} s" if seconds < 10 else f"{5 * round(seconds / 5)} s"
    minutes = max(1, round(seconds / 60))
    if minutes < 100:
        return f"{minutes} min"
    hours = seconds / 3600
    return f"{round(2 * hours) / 2:g} h" if hours < 36 else f"{round(hours / 24)} d"


def counted(count: int, one: str, many: str = "") -> str:
    """Format a count with the noun that is counted.

    >>> counted(1, "row"), counted(4500, "row"), counted(2, "class", "classes")
    ('1 row', '4,500 rows', '2 classes')
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"
