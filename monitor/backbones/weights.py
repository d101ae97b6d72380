"""Weights from files: read without running anything in them, named by what they hold.

A ``.pth`` file is a pickle. It is opened with ``weights_only=True``, which admits tensors and plain
containers and nothing that could run, written once as safetensors into the cache under the hash
of the file, and taken from there ever after.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from monitor.backbones.errors import WeightsMismatch, WeightsUnreadable

State = Mapping[str, Tensor]

_CONTAINERS = ("state_dict", "model", "teacher", "model_state_dict")
"""Where training scripts keep the weights beside their optimiser."""

_WRAPPERS = ("module.", "backbone.", "encoder.", "model.")
"""What wrappers (DataParallel, DINO, Lightning) put before every name."""

_HEADS = ("fc.", "head.", "classifier.", "projection_head.", "prototypes.", "mlp_head.")
"""Layers behind the features: a file may have them, the backbone does not use them."""

_COUNTER = "num_batches_tracked"
"""Batch norm's training step count; older files lack it and inference never reads it."""

_SHOWN = 3
"""Names listed in an error: enough to recognise the network, short enough for one line."""


def read_weights(path: Path, cache: Path) -> State:
    """The tensors of a ``.safetensors`` or ``.pth``/``.pt``/``.tar`` file, by their own names."""
    if not path.is_file():
        raise WeightsUnreadable(f"{path}: no such weights file; check the path")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    converted = cache / "weights" / f"{_file_sha256(path)}.safetensors"
    if converted.is_file():
        return _read_safetensors(converted)
    state = _read_pickled(path)
    write_atomically(converted, lambda part: safetensors.torch.save_file(dict(state), part))
    return state


def fit_weights(network: nn.Module, state: State, *, where: str) -> None:
    """Load tensors into a network that was just built for them, or say what does not fit.

    Prefixes of wrappers and layers behind the features are left out; anything else must match
    one to one, because a half-loaded backbone produces features that look right.
    """
    wanted = network.state_dict()
    given = _unwrapped(state, wanted)
    missing = [key for key in wanted if key not in given and not key.endswith(_COUNTER)]
    unexpected = [key for key in given if key not in wanted and not key.startswith(_HEADS)]
    shapes = [
        f"{key} is {tuple(given[key].shape)} and not {tuple(wanted[key].shape)}"
        for key in wanted
        if key in given and given[key].shape != wanted[key].shape
    ]
    problems = [
        f"{len(found)} {kind} ({', '.join(found[:_SHOWN])}{', …' if len(found) > _SHOWN else ''})"
        for kind, found in (("missing", missing), ("unexpected", unexpected), ("misshapen", shapes))
        if found
    ]
    if problems:
        raise WeightsMismatch(
            f"{where}: the weights do not fit this backbone: {'; '.join(problems)}; name the "
            "backbone they were trained for"
        )
    network.load_state_dict({key: given.get(key, value) for key, value in wanted.items()})


def sha256_of_state(state: State) -> str:
    """Name weights by what they compute, so the same tensors agree in any file format.

    >>> one, other = {"a": torch.zeros(2), "b": torch.ones(1)}, {"b": torch.ones(1)}
    >>> sha256_of_state(one) == sha256_of_state({**other, "a": torch.zeros(2)})
    True
    >>> sha256_of_state(one) == sha256_of_state(other)
    False
    """
    digest = hashlib.sha256()
    for key in sorted(state):
        if key.endswith(_COUNTER):
            continue
        value = state[key].detach().cpu().contiguous()
        digest.update(f"{key}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_atomically(path: Path, write: Callable[[str], None]) -> None:
    """Let ``write`` fill a temporary file, then put it in place whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        os.close(handle)
        write(part)
        with open(part, "rb") as written:
            os.fsync(written.fileno())
        os.replace(part, path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def _read_safetensors(path: Path) -> State:
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise WeightsUnreadable(
            f"{path}: is no readable safetensors file ({_one_line(error)}); fetch it again"
        ) from None


def _read_pickled(path: Path) -> State:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise WeightsUnreadable(
            f"{path}: is no weights file, or holds more than tensors and is not opened for safety; "
            "save only its state_dict, or give a .safetensors file"
        ) from None
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, BadZipFile) as error:
        raise WeightsUnreadable(
            f"{path}: cannot be read as weights ({_one_line(error)}); fetch it again"
        ) from None
    state = _tensors(loaded)
    if not state:
        raise WeightsUnreadable(
            f"{path}: holds no tensors by name; save the network's state_dict in it"
        )
    return state


def _tensors(loaded: Any) -> dict[str, Tensor]:
    if not isinstance(loaded, Mapping):
        return {}
    inner = next((loaded[key] for key in _CONTAINERS if isinstance(loaded.get(key), Mapping)), None)
    if inner is not None:
        return _tensors(inner)
    # A copy each, since safetensors refuses tensors that share their memory.
    return {
        str(key): value.detach().clone().contiguous()
        for key, value in loaded.items()
        if isinstance(value, Tensor)
    }


def _unwrapped(state: State, wanted: State) -> dict[str, Tensor]:
    """Strip wrappers' prefixes from the names, one after the other, until they are known."""

    def bare(key: str) -> str:
        while key not in wanted:
            prefix = next((prefix for prefix in _WRAPPERS if key.startswith(prefix)), None)
            if prefix is None:
                return key
            key = key.removeprefix(prefix)
        return key

    return {bare(key): value for key, value in state.items()}


def _file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _one_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
