"""conclad: notices when a feed of images begins to show something it has never seen."""

__version__ = "0.1.0"
