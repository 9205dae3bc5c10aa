"""Load for a running server: requests at a given pace, and what their callers met."""
