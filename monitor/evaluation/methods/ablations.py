"""What is switched off in each ablation: the paper's four, and one for each mechanism of robust."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: By preset and name: what it does, and the settings that it changes.
ABLATIONS: Mapping[str, Mapping[str, tuple[str, Mapping[str, Any]]]] = {
    "paper": {
        "sup-top": ("asks for the highest scores instead of the ambiguous ones", {"query": "top"}),
        "sup-rand": ("asks at random", {"query": "random"}),
        "no-iters": (
            "asks and pseudo-labels in one shot",
            {"first_share": 1.0, "iterations": 1, "alpha": 1.0},
        ),
        "no-pseudo": ("learns from the asked labels alone", {"pseudo_labels": False}),
    },
    "robust": {
        "sup-top": ("asks for the highest scores", {"query": "top"}),
        "sup-rand": ("asks at random", {"query": "random"}),
        "no-iters": ("asks in one shot", {"one_shot": True}),
        "no-pseudo": ("learns from the asked labels alone", {"pseudo_labels": False}),
        "no-direction": ("views without directions", {"views": ("residual", "reach")}),
        "no-residual": ("views without S⁰", {"views": ("direction", "reach")}),
        "no-reach": ("views without the reach of references", {"views": ("direction", "residual")}),
        "no-views": ("questions and labels without any view", {"views": ()}),
        "no-evidence": ("labels not moved by the views", {"least_evidence": 0.5}),
        "no-everywhere": ("asks only where the pool looks new", {"everywhere_from": 10**6}),
        "no-dimming": ("questions do not keep apart", {"dimming": 0.0}),
        "no-spread": ("labels do not travel", {"graph": {"propagation": 0.0}}),
        "no-shift": ("answers say nothing about a shift", {"mind_shift": False}),
        "no-whitening": (
            "the space of the graph is not whitened",
            {"graph": {"whitening": 1.0}},
        ),
        "no-second-opinion": ("the final score is the ratio alone", {"second_opinion": False}),
        "no-folds": ("a tenth of each class is held out", {"folds": 0}),
    },
}
