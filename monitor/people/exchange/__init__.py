"""Questions out of the store and answers into it, in formats that other tools speak."""
