"""Exit codes: what a command leaves for scripts.

0    done                                  3    a file is damaged
1    the fault is ours: please report it   4    the disk is full, broken or read-only
2    bad input or usage                    5    training met numbers that are not finite
6    repeat the command: it goes on, and knows why it could not
7    done, but for rows that could not be answered: each has a line that says why
129, 130, 143    stopped by a signal: hang-up, Ctrl-C, terminate
"""

import errno

from seqloom.errors import DamagedError, RepeatError

BAD_INPUT, DAMAGED, DISK, NOT_FINITE, REPEAT, SOME_BAD = 2, 3, 4, 5, 6, 7
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


def exit_code_of(error: BaseException) -> int:
    """The exit code for an error that ended a command."""
    if isinstance(error, DamagedError):
        return DAMAGED
    if isinstance(error, RepeatError):
        return REPEAT
    cause = error if isinstance(error, OSError) else error.__cause__
    return DISK if isinstance(cause, OSError) and cause.errno in DISK_ERRORS else BAD_INPUT
