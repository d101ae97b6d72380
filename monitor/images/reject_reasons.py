"""Why a row was not scored: a small closed set, because each becomes a label value of a metric."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from monitor.plain_text import visible


class Reason(StrEnum):
    """One word for each thing that goes wrong with one row.

    >>> Reason("truncated") is Reason.TRUNCATED
    True
    """

    BAD_ID = "bad_id"
    """`image_id` is null or empty, or an id is no name that can be taken in (too long, not valid
    UTF-8, with characters that cannot be shown): no verdict could be traced back."""
    BAD_TIME = "bad_time"
    """`captured_at` is not ISO 8601, or outside the years 1 to 9999."""
    NO_IMAGE = "no_image"
    """The image is null or empty; a path beside it is never opened."""
    UNREADABLE = "unreadable"
    """The row lies in a part of the Parquet file that cannot be read."""
    DUPLICATE = "duplicate"
    """The same source and image id came before."""
    UNKNOWN_FORMAT = "unknown_format"
    """The bytes begin like none of JPEG, PNG, WebP and TIFF."""
    CORRUPT = "corrupt"
    """The bytes begin like an image and do not go on like one."""
    TRUNCATED = "truncated"
    """The image ends too early."""
    TOO_LARGE = "too_large"
    """More pixels, or far more work, than the settings allow."""
    BAD_SHAPE = "bad_shape"
    """No pixels at all, or a strip so thin that nothing could be seen on it."""
    SEVERAL_FRAMES = "several_frames"
    """Animated, or a TIFF of several pages."""
    UNSUPPORTED_PIXELS = "unsupported_pixels"
    """Pixels of a kind that has no stated rule, or a compression that is not installed."""
    NEEDS_BANDS = "needs_bands"
    """A TIFF of many bands, and nobody said which of them are red, green and blue."""
    DECODER_DIED = "decoder_died"
    """Its decoder crashed or hung, each time: a hole in a decoder, or an attempt to find one."""
    NOT_FINITE = "not_finite"
    """The backbone gives no finite feature for it: an overflow in half precision, say."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """One image that cannot be scored, and why.

    >>> str(Rejected(Reason.NO_IMAGE, "the image is null"))
    'no_image: the image is null'
    """

    reason: Reason
    detail: str

    def __post_init__(self) -> None:
        # Details quote what decoders say, and they quote the image.
        object.__setattr__(self, "detail", visible(self.detail))

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"
