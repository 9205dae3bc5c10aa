"""Audio files in, encoded audio streams out."""
