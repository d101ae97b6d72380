"""The root of every error that conclad raises on purpose.

Whatever derives from :class:`ConcladError` carries one sentence that a person can act on;
the command line prints that sentence and exits with code 2. Anything else is a bug and
keeps its traceback.
"""


class ConcladError(Exception):
    """Something a person can mend: bad input, bad configuration, a broken file."""
