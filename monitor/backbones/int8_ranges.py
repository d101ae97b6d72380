"""What the convolutions of a backbone see, as 8-bit engines need to know it.

An 8-bit number stands for one of 256 values between two ends, which must be fixed before the first
image comes. They are kept here, by the weights of the backbone, and so a feature hangs on nothing
but the image and the backbone: no graph has to travel with a state. They were measured once on
images of three kinds (`python -m bench.int8_ranges`) and hold for others, because the activations
of these networks are cut off at six; whether they serve a feed is seen on its labelled images (see
`monitor.jobs.input_choice`). A table is never changed, for fingerprints hold its hash.
"""

from __future__ import annotations

import hashlib
import json

Ranges = tuple[float, ...]
"""One for each convolution, in their order: what it sees lies between zero and this; where the
number is negative, between it and its opposite. Zero: the convolution stays in float32."""

# fmt: off
_LITE0: Ranges = (
    -1.0, 6.0, 6.0, -25.5, 6.0, 6.0, -40.6, 6.0, 6.0, -42.6, 6.0, 6.0,
    -33.3, 6.0, 6.0, -34.9, 6.0, 6.0, -29.9, 6.0, 6.0, -29.9, 6.0, 6.0,
    -31.9, 6.0, 6.0, -24.7, 6.0, 6.0, -28.2, 5.6, 5.9, -30.3, 6.0, 6.0,
    -24.5, 6.0, 6.0, -25.8, 6.0, 4.8, -25.4, 6.0, 4.4, -30.0, 6.0, 6.0,
    -12.7,
)
# fmt: on

RANGES: dict[str, Ranges] = {
    "5c360cc0424479f98b23189196811379e70b4e0377a25de85ead0a82dc028bb9": _LITE0,
}
"""By the hash of the weights."""


def int8_ranges(weights: str) -> Ranges | None:
    """Of the backbone with these weights, if they are known."""
    return RANGES.get(weights)


def int8_mark(weights: str) -> str | None:
    """For the fingerprint: other ranges make other features."""
    ranges = int8_ranges(weights)
    return None if ranges is None else hashlib.sha256(json.dumps(ranges).encode()).hexdigest()[:16]
