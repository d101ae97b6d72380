"""Where an evaluation keeps its results, so that an interrupted one goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from monitor.evaluation.errors import OutputInUseError
from monitor.evaluation.labelled_features import LabelledFeatures
from monitor.evaluation.methods.registry import entry_for
from monitor.evaluation.plan_cell import Cell, Record
from monitor.evaluation.plans import EvaluationPlan

# Every figure depends on these, whatever the method.
_MEASURING = (
    "monitor.evaluation.protocol",
    "monitor.evaluation.oracle",
    "monitor.evaluation.plan_cell",
)
# Other versions of these may round differently, so their figures are not mixed.
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "torch")
# Asking for more of these adds cells and leaves those computed before as they are.
_MAY_GROW = ("methods", "budgets", "increments", "seeds")


def describe(plan: EvaluationPlan, datasets: Sequence[LabelledFeatures]) -> dict[str, Any]:
    """The plan and the data as JSON: what makes two evaluations the same one."""
    described: dict[str, Any] = json.loads(json.dumps(asdict(plan)))
    described["data"] = {f"{d.dataset}/{d.backbone}": d.digest for d in datasets}
    return described


def claim(out: Path, described: Mapping[str, Any], *, force: bool) -> None:
    """Take the folder for this plan, unless it holds something that would be lost."""
    claimed = out / "plan.json"
    if not force and out.exists():
        if not out.is_dir():
            raise OutputInUseError(f"{out}: is a file; give a folder after --out")
        if claimed.exists():
            different = _lost(read_json(claimed), described)
            if different:
                raise OutputInUseError(
                    f"{out}: holds an evaluation with other {', '.join(different)}; give another "
                    f"--out, or --force to replace it"
                )
        elif any(out.iterdir()):
            raise OutputInUseError(
                f"{out}: is not empty and holds no evaluation; give another --out, or --force to "
                f"write into it"
            )
    write_json(claimed, described)


def load_cell(out: Path, cell: Cell, digest: str) -> list[Record] | None:
    """The records of a cell that was finished with the same plan, data and code, if any."""
    path = _cell_path(out, cell)
    if not path.exists():
        return None
    stored = read_json(path)
    return stored["records"] if stored and stored.get("digest") == digest else None


def save_cell(out: Path, cell: Cell, digest: str, records: Sequence[Record]) -> None:
    write_json(_cell_path(out, cell), {"digest": digest, "records": list(records)})


def cell_digest(cell: Cell, plan: EvaluationPlan, data: LabelledFeatures) -> str:
    """Changes with whatever could change the cell's figures, and with nothing else."""
    parts = {
        "cell": asdict(cell),
        "stream": asdict(plan.stream_settings(cell.increment)),
        "data": data.digest,
        "code": code_digest((*_MEASURING, *entry_for(cell.method).uses)),
        "libraries": library_versions(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def library_versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


@cache
def code_digest(modules: tuple[str, ...]) -> str:
    """A hash of the source of these modules; a package counts with everything in it."""
    digest = hashlib.sha256()
    for path in sorted({path for name in modules for path in _sources(name)}):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def write_json(path: Path, value: Any) -> None:
    """Write whole or not at all: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, (json.dumps(value, indent=1, allow_nan=False) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """The same for anything else."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def _sources(module: str) -> Iterable[Path]:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return ()
    origin = Path(spec.origin)
    return origin.parent.rglob("*.py") if spec.submodule_search_locations else (origin,)


def _cell_path(out: Path, cell: Cell) -> Path:
    # The key's slashes make folders; a readable tree helps who looks for one cell.
    safe = [_safe(part) for part in cell.key.split("/")]
    return out.joinpath("cells", *safe[:-1], f"{safe[-1]}.json")


def _safe(part: str) -> str:
    kept = "".join(c if c.isalnum() or c in "-_." else "_" for c in part)
    return kept if kept.strip(".") else f"_{kept}"


def read_json(path: Path) -> Any:
    """What a file holds, or None."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        # Torn by a full disk or edited by hand: as good as absent.
        return None


def _lost(before: Any, now: Mapping[str, Any]) -> list[str]:
    """The parts of an earlier plan that the present one would not keep."""
    if not isinstance(before, dict):
        return ["contents"]
    return [
        key
        for key in sorted({*before, *now})
        if not (
            set(before.get(key) or ()) <= set(now.get(key) or ())
            if key in _MAY_GROW
            else before.get(key) == now.get(key)
        )
    ]
