"""Long text, or text that arrives in pieces, as one stream of speech: split, spoken sentence by sentence, joined."""
