"""Numeric kernels: plain torch references, which run on every device, and `triton_*` twins held equal to them."""
