"""When an image was captured: as its path says, else its EXIF, else the time of its file."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo

from PIL import ExifTags, Image

_MARK = b"Exif\x00\x00"
# EXIF is the first or second segment of a JPEG, each of at most 64 KB.
_HEAD = 4096
_LARGEST = 65536


def from_exif(data: bytes, zone: tzinfo = UTC) -> datetime | None:
    """DateTimeOriginal with its fraction and offset; ``zone`` where it names no offset.

    Cameras without a clock write zeros, which is no time.
    """
    at = data.find(_MARK, 0, _HEAD)
    if data[:3] != b"\xff\xd8\xff" or at < 0:
        return None
    try:
        exif = Image.Exif()
        exif.load(data[at : at + _LARGEST])
        inner = exif.get_ifd(ExifTags.IFD.Exif)
        text = inner.get(ExifTags.Base.DateTimeOriginal) or exif.get(ExifTags.Base.DateTime)
        fraction = str(inner.get(ExifTags.Base.SubsecTimeOriginal) or "").strip(" \0")
        offset = str(inner.get(ExifTags.Base.OffsetTimeOriginal) or "").strip(" \0")
        moment = datetime.strptime(str(text).strip(" \0"), "%Y:%m:%d %H:%M:%S")
        if fraction.isdigit():
            moment = moment.replace(microsecond=int(fraction.ljust(6, "0")[:6]))
        if offset:
            moment = moment.replace(tzinfo=datetime.strptime(offset, "%z").tzinfo)
    except Exception:  # noqa: BLE001 - EXIF is written by anything, and a broken one is none
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)


def from_nanoseconds(modified_ns: int) -> datetime:
    """
    >>> from_nanoseconds(1_500_000_000).isoformat()
    '1970-01-01T00:00:01.500000+00:00'
    """
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=modified_ns // 1000)
