"""Numeric kernels. Each module holds the plain torch reference, which runs on every device."""
