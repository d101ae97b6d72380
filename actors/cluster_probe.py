"""``python -m actors.cluster_probe ADDRESS``: what a cluster has, as one line of JSON.

For ``conclad doctor``, in a process of its own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from monitor.errors import ConcladError


def probe(address: str) -> dict[str, Any]:
    """The version of Ray here, and what each living node there has."""
    import ray
    from ray.exceptions import AuthenticationError

    from actors.ray_cluster import connect, living_nodes

    try:
        connect(address)
    except ConcladError as error:
        return {"error": str(error)}
    except AuthenticationError:
        return {
            "error": f"the cluster at {address} wants a token; give it as RAY_AUTH_TOKEN or in a "
            "file that RAY_AUTH_TOKEN_PATH names"
        }
    nodes = [
        {
            "resources": {k: amount for k, amount in node.resources.items() if ":" not in k},
            "labels": dict(node.labels),
        }
        for node in living_nodes()
    ]
    return {"ray": ray.__version__, "nodes": nodes}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe(sys.argv[1])) + "\n")
