"""``python -m monitor.desk``: the desk as a child of the monitor."""

import sys

from monitor.desk.server import run_child

if __name__ == "__main__":
    sys.exit(run_child())
