"""The desk: the page where people answer, and the same over HTTP for programs."""
