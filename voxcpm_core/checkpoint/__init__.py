"""Checkpoint folders: where they are, what must be in them, reading, converting and making them."""
