"""The VoxCPM model: one code path for the three generations."""
