"""VoxCPM text-to-speech: model, continuous-batching engine, audio and text."""
