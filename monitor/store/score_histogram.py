"""How scores lie, counted by source: against T_inner, and against chance."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monitor.store.output_files import NOVEL
from monitor.store.records import Count

#: Upper ends of the histogram of score over T_inner: narrow around 1, where verdicts turn.
BORDERS = (0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 4.0)
LABELS = (*(f"{border:g}" for border in BORDERS), "+Inf")


def score_counts(verdicts: pa.Table, exceedance: float) -> Iterator[Count]:
    """The histogram of some verdicts, and how many lie above T_inner and were expected to."""
    sources = verdicts.column("source_id").combine_chunks().dictionary_encode()
    names = sources.dictionary.to_pylist()
    index = sources.indices.to_numpy(zero_copy_only=False)
    ratio = verdicts.column("score_ratio").to_numpy()
    novel = pc.equal(verdicts.column("verdict"), NOVEL).to_numpy()
    bins = np.searchsorted(BORDERS, ratio, side="left")
    width = len(LABELS)
    above, sums = (np.bincount(index, by, len(names)).tolist() for by in (novel, ratio))
    expected = (exceedance * np.bincount(index, minlength=len(names))).tolist()
    for position, source in enumerate(names):
        yield Count("above", source, "", above[position])
        yield Count("expected_above", source, "", expected[position])
        yield Count("score_ratio_sum", source, "", sums[position])
    filled = np.bincount(index * width + bins, minlength=len(names) * width)
    for cell in np.flatnonzero(filled).tolist():
        source, label = names[cell // width], LABELS[cell % width]
        yield Count("score_ratio", source, label, float(filled[cell]))
