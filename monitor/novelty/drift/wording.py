"""What changed, in words, from the numbers that say how images were taken."""

from __future__ import annotations

from collections.abc import Mapping

from monitor.novelty.drift.drift_settings import DRIFT_DEFAULTS, DriftSettings

# The word for more and for less of each number; None where a person would not say it.
_WORDS: Mapping[str, tuple[str | None, str | None]] = {
    "brightness": ("brighter", "darker"),
    "contrast": ("more contrast", "less contrast"),
    "sharpness": ("sharper", "blurred"),
    "noise": ("noisier", None),
    "red": ("redder", "less red"),
    "blue": ("bluer", "yellower"),
    "black": ("hazier", None),
    "blocks": ("more compressed", None),
}
# A change that comes with another, stronger one says nothing of its own: noise looks sharp, dim
# pictures lack contrast, haze is bright and soft, weak contrast lifts the darkest points.
_FOLLOWS: Mapping[str, tuple[str, ...]] = {
    "sharper": ("noisier", "more compressed", "less contrast", "darker"),
    "blurred": ("hazier", "more compressed"),
    "less contrast": ("darker", "hazier"),
    "more contrast": ("noisier", "brighter"),
    "brighter": ("hazier",),
    "hazier": ("less contrast",),
    "redder": ("yellower",),
}


def changes(
    effects: Mapping[str, float], settings: DriftSettings = DRIFT_DEFAULTS
) -> tuple[str, ...]:
    """Words for changes in standard deviations, the strongest first; empty if none is large.

    >>> changes({"noise": 8.0, "sharpness": 1.6, "brightness": -0.1})
    ('noisier',)
    >>> changes({"brightness": -1.6, "contrast": -0.7, "black": -1.2})
    ('darker',)
    """
    told: dict[str, float] = {}
    for name, effect in effects.items():
        more, less = _WORDS.get(name, (None, None))
        word = more if effect > 0 else less
        if word is not None and abs(effect) >= settings.worth_a_word:
            told[word] = abs(effect)
    own = {
        word: size
        for word, size in told.items()
        if not any(told.get(cause, 0.0) > size for cause in _FOLLOWS.get(word, ()))
    }
    return tuple(sorted(own, key=lambda word: -own[word])[: settings.words_most])
