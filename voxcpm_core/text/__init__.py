"""From text to token ids, and the layout of a prefill."""
