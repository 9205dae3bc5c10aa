"""Entry of the worker process."""

from voxcpm_core.worker.child import main

if __name__ == "__main__":
    main()
