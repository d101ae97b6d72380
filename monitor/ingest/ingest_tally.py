"""What a run did, in figures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from monitor.ingest.reader_items import LeftOut

EXAMPLES = 5
"""Names shown for what was left out; the rest is counted."""


@dataclass(slots=True)
class Tally:
    """Counted as the run goes on."""

    images: int = 0
    known: int = 0
    """Files and images that an earlier run, or this one, brought in already."""
    repeated: int = 0
    bytes: int = 0
    files: int = 0
    """Published."""
    seconds: float = 0.0
    by_source: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    """By reason."""
    examples: list[LeftOut] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    """Files of kinds that are not ours, by suffix."""
    waits_for_space: bool = False
    was_stopped: bool = False

    @property
    def seen(self) -> int:
        """Everything that was dealt with."""
        return self.images + self.known + self.repeated + sum(self.left_out.values())

    def leave_out(self, what: LeftOut) -> bool:
        """Count it; whether it is one of the first, which are worth a line."""
        self.left_out[what.why] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(what)
            return True
        return False

    def to_dict(self) -> dict[str, Any]:
        return {
            "images": self.images,
            "known_before": self.known,
            "frames_without_change": self.repeated,
            "bytes": self.bytes,
            "files": self.files,
            "seconds": round(self.seconds, 3),
            "sources": dict(sorted(self.by_source.items())),
            "left_out": dict(self.left_out.most_common()),
            "left_out_first": [str(example) for example in self.examples],
            "ignored": dict(self.ignored.most_common()),
            "stopped": self.was_stopped,
        }
