"""`python -m voxcpm_client` is `voxcpm-triton`."""

from voxcpm_client.cli.app import main

main()
