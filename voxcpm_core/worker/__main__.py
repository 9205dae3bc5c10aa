"""Entry of the worker process."""

import sys

from voxcpm_core.children.parent import end_with_parent

if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))  # from now on, not only after the seconds that it takes to import torch
    from voxcpm_core.worker.child import main

    main()
