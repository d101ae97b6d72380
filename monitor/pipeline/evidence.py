"""What the trigger remembers between two pools: where it is kept, and when it begins anew."""

from __future__ import annotations

from monitor.novelty.trigger import Watch
from monitor.store import Transaction

ROOM, KEY = "trigger", "watch"


def read_watch(tx: Transaction, version: int) -> Watch:
    """What has gathered with this version of the detector; another one knows more."""
    kept = tx.notes.get(ROOM, KEY, {})
    watch = Watch.from_dict(kept)
    return watch if kept.get("version", version) == version else watch.learnt()


def keep_watch(tx: Transaction, version: int, watch: Watch) -> None:
    tx.notes.set(ROOM, KEY, {"version": version, **watch.to_dict()})
