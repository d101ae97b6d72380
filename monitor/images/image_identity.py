"""One image counts once: the identity of an image, hashed in one way for jobs and for the store."""

from __future__ import annotations

import hashlib

KEY_BYTES = 16
"""128 bits: a billion images collide with a probability of about 1.5e-21."""


def image_digest(data: bytes) -> str:
    """The hash of an image's bytes: whether what is shown is what was scored.

    >>> image_digest(b"")
    'cae66941d9efbd404e4d88758ea67670'
    """
    return hashlib.blake2b(data, digest_size=KEY_BYTES).hexdigest()


def image_key(source_id: str, image_id: str) -> bytes:
    """The identity of an image, the same in every process and for ever.

    The length of the source stands before it, so that ("a", "bc") and ("ab", "c") differ.

    >>> image_key("cam-7", "0001").hex()
    'b976639b3b8279fe0e54d7ac6798e928'
    >>> image_key("a", "bc") == image_key("ab", "c")
    False
    """
    source = source_id.encode("utf-8", "surrogatepass")
    image = image_id.encode("utf-8", "surrogatepass")
    text = len(source).to_bytes(8, "big") + source + image
    return hashlib.blake2b(text, digest_size=KEY_BYTES, person=b"conclad sample").digest()
