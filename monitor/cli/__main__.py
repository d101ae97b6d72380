"""So that ``python -m monitor.cli`` is the same as ``conclad``."""

from monitor.cli.root import main

if __name__ == "__main__":
    main()
