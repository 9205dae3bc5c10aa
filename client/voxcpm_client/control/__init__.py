"""What a client asks of a server besides speech: voices, status, cancelling by id, latents of an audio file."""
