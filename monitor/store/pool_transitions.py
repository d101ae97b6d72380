"""The states of a pool: which state follows on which event.

:data:`TRANSITIONS` has every state, every event, and the state that follows. What is not in the
table cannot happen: ``tx.pools.apply`` is the only way to change a pool's state, and it refuses
every other event. ``filling`` takes samples; ``closed`` waits for its inspection; ``asking`` is the
machine's turn (the inner loop chooses, thumbnails are rendered), ``waiting`` the people's; ``held``
waits for an operator. The other three are ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class PoolState(StrEnum):
    """A pool of scored samples on its way from the feed to an answer."""

    FILLING = "filling"
    CLOSED = "closed"
    QUIET = "quiet"
    ASKING = "asking"
    WAITING = "waiting"
    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    HELD = "held"


class PoolEvent(StrEnum):
    """What can happen to a pool."""

    FILLED = "filled"
    """It is full or old enough, or the feed has ended: it takes no more samples."""
    FOUND_CALM = "found calm"
    """The inspection shows nothing beyond chance, so no question is asked."""
    TRIGGERED = "triggered"
    """The inspection shows more than chance explains, or a shift to confirm."""
    PROBED = "probed"
    """Nothing beyond chance, but a few questions of the week's trickle go to it."""
    ROUND_OPENED = "round opened"
    """People have a round of questions to answer."""
    ROUND_CLOSED = "round closed"
    """All have been answered, or their time is over."""
    NOTHING_LEARNT = "nothing learnt"
    """The inner loop ended without a class or an adaptation."""
    VERSION_PUBLISHED = "version published"
    """A detector version with what was learnt is in use."""
    VERSION_HELD = "version held"
    """The gate objects to that version."""
    VERSION_RELEASED = "version released"
    """An operator puts the held version into use all the same."""
    VERSION_REFUSED = "version refused"
    """An operator turns the held version down."""
    GIVEN_UP = "given up"
    """Nobody answered, too many pools wait, or its inner loop fails."""


_S, _E = PoolState, PoolEvent

TRANSITIONS: Mapping[PoolState, Mapping[PoolEvent, PoolState]] = MappingProxyType(
    {
        _S.FILLING: {
            _E.FILLED: _S.CLOSED,
        },
        _S.CLOSED: {
            _E.FOUND_CALM: _S.QUIET,
            _E.TRIGGERED: _S.ASKING,
            _E.PROBED: _S.ASKING,
            _E.GIVEN_UP: _S.UNRESOLVED,
        },
        _S.ASKING: {
            _E.ROUND_OPENED: _S.WAITING,
            _E.NOTHING_LEARNT: _S.RESOLVED,
            _E.VERSION_PUBLISHED: _S.RESOLVED,
            _E.VERSION_HELD: _S.HELD,
            _E.GIVEN_UP: _S.UNRESOLVED,
        },
        _S.WAITING: {
            _E.ROUND_CLOSED: _S.ASKING,
        },
        _S.HELD: {
            _E.VERSION_RELEASED: _S.RESOLVED,
            _E.VERSION_REFUSED: _S.UNRESOLVED,
        },
        _S.QUIET: {},
        _S.RESOLVED: {},
        _S.UNRESOLVED: {},
    }
)

#: Nothing will be asked of these any more, so what was spooled for them may be dropped.
FINISHED_POOLS = frozenset(state for state, events in TRANSITIONS.items() if not events)


def next_state(state: PoolState, event: PoolEvent) -> PoolState | None:
    """The state after an event; None if it cannot happen in this one.

    >>> next_state(PoolState.WAITING, PoolEvent.ROUND_CLOSED)
    <PoolState.ASKING: 'asking'>
    >>> next_state(PoolState.QUIET, PoolEvent.TRIGGERED) is None
    True
    """
    return TRANSITIONS[state].get(event)
