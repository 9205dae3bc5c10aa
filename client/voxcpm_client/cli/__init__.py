"""The command line `voxcpm-triton`."""
