"""Methods by name. Nothing is imported until a method is asked for.

``uses`` lists the modules (or packages) a method's figures depend on: results computed before
one of them changed are computed again.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Literal, cast

from monitor.evaluation.errors import MethodUnavailableError, UnknownMethodError
from monitor.evaluation.methods.ablations import ABLATIONS
from monitor.evaluation.methods.base import Method

# spends: asks up to the budget; nothing: asks for no label; everything: is given the labels of
# the whole pool. Only the first kind is run once per budget.
Labels = Literal["spends", "nothing", "everything"]

_CONCLAD = "monitor.evaluation.methods.conclad"
_BASELINE = (
    "monitor.evaluation.methods.shared_by_baselines",
    "monitor.novelty.subspace",
    "monitor.novelty.subspace",
)
_HEAD = (
    "monitor.evaluation.methods.shared_by_baselines",
    "monitor.evaluation.methods.perceptron_head",
)


@dataclass(frozen=True, slots=True)
class MethodEntry:
    """One method: what it is, what it costs in labels, and where its code lives."""

    name: str
    summary: str
    labels: Labels
    module: str
    uses: tuple[str, ...]


def _entries() -> Iterable[MethodEntry]:
    conclad = (_CONCLAD, "monitor.novelty")
    yield MethodEntry("robust", "CONCLAD as users get it", "spends", _CONCLAD, conclad)
    yield MethodEntry("paper", "CONCLAD by the letter of the paper", "spends", _CONCLAD, conclad)
    yield MethodEntry(
        "ceiling", "the same score given every label", "everything", _CONCLAD, conclad
    )
    for preset, ablations in ABLATIONS.items():
        for suffix, (summary, _) in ablations.items():
            yield MethodEntry(
                f"{preset}-{suffix}", f"{preset}, {summary}", "spends", _CONCLAD, conclad
            )
    dfm, incdfm, er = (f"monitor.evaluation.methods.{name}" for name in ("dfm", "incdfm", "er"))
    yield MethodEntry("dfm", "distance to the known subspaces", "nothing", dfm, (dfm, *_BASELINE))
    for name, threshold in (("incdfm", "mean + 2 std"), ("incdfm-p85", "85th percentile")):
        summary = f"one new subspace per task, T_inner at {threshold}"
        yield MethodEntry(name, summary, "nothing", incdfm, (incdfm, *_BASELINE))
    for name, summary in (
        ("er", "perceptron with replay, entropy as novelty"),
        ("er-pnew", "perceptron with replay, probability of the new classes as novelty"),
        ("pseudoer", "er that also pseudo-labels"),
        ("pseudoer-pnew", "er-pnew that also pseudo-labels"),
    ):
        yield MethodEntry(name, summary, "spends", er, (er, *_HEAD))


METHODS: dict[str, MethodEntry] = {entry.name: entry for entry in _entries()}


def entry_for(name: str) -> MethodEntry:
    """The entry of a method, or an error that names the nearest one.

    >>> entry_for("dfm").labels
    'nothing'
    """
    try:
        return METHODS[name]
    except KeyError:
        near = difflib.get_close_matches(name, METHODS, n=1, cutoff=0.0)
        raise UnknownMethodError(
            f"no method is called {name!r}; did you mean {near[0]!r}? --list-methods shows all"
        ) from None


def make_method(name: str, dataset: str = "") -> Method:
    """A fresh instance. The dataset's name decides the size of ER's buffer, as in the paper.

    >>> make_method("incdfm-p85").name
    'incdfm-p85'
    """
    entry = entry_for(name)
    module = _imported(entry)
    if entry.module == _CONCLAD:
        return cast(Method, module.conclad_method(name))
    if entry.module.endswith(".er"):
        return cast(Method, module.er_method(name, dataset))
    return cast(Method, module.METHODS[name]())


def _imported(entry: MethodEntry) -> ModuleType:
    try:
        return import_module(entry.module)
    except ModuleNotFoundError as error:
        raise MethodUnavailableError(
            f"method {entry.name!r} needs {error.name}, which is not installed; install it or "
            f"leave the method out"
        ) from error
