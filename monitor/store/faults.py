"""Named places at which a test can kill the process.

There is a fault point before and after every durable action. It costs one look into the
environment and does nothing else, unless ``CONCLAD_FAULT`` names it: then the process dies as
if the power had gone (SIGKILL: no cleanup, no ``finally``). ``name:3`` dies at the third pass.

Modules declare their points when they are imported, so a test can walk over all of them and a
mistyped name fails at once instead of never firing.

>>> declare("example.before_write")
>>> fault_point("example.before_write")
>>> "example.before_write" in declared()
True
"""

from __future__ import annotations

import os
import signal
from collections import Counter

VARIABLE = "CONCLAD_FAULT"

_declared: set[str] = set()
_passes: Counter[str] = Counter()


def declare(*names: str) -> None:
    """Register names; declaring one twice is harmless (modules may be reloaded)."""
    _declared.update(names)


def declared(prefix: str = "") -> tuple[str, ...]:
    """All names of the modules imported so far that start with ``prefix``, sorted."""
    return tuple(sorted(name for name in _declared if name.startswith(prefix)))


def fault_point(name: str) -> None:
    """Die here if the environment says so."""
    if name not in _declared:
        raise LookupError(f"fault point {name!r} was never declared")
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    target, _, turn = wanted.partition(":")
    if target != name:
        return
    _passes[name] += 1
    if _passes[name] == int(turn or 1):
        os.kill(os.getpid(), signal.SIGKILL)
