"""Refuses a CPU image that carries CUDA's libraries: python check_variant.py cpu

torch's default build brings four gigabytes of them along, which a machine without a GPU downloads,
stores and scans for nothing.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions

#: What torch's CUDA builds depend on.
CUDA = re.compile(r"(nvidia|cuda)[-_].*|triton", re.IGNORECASE)


def main(variant: str) -> None:
    found = sorted({str(d.metadata["Name"]) for d in distributions()})
    unwanted = [name for name in found if CUDA.fullmatch(name)]
    if variant == "cpu" and unwanted:
        sys.exit(
            f"VARIANT=cpu, but torch brought CUDA's libraries along ({', '.join(unwanted)}); name "
            "an index with torch's CPU builds (--build-arg TORCH_INDEX=…), or build VARIANT=cuda"
        )


if __name__ == "__main__":
    main(sys.argv[1])
