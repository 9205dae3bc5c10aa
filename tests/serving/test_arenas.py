"""Threads share what the C library sets aside for them."""

import ctypes
import subprocess
import sys

import pytest

from voxcpm_core.arenas import NUM_ARENAS

PROGRAM = """
import ctypes, threading
from voxcpm_core.arenas import bound_arenas

if {is_bound}:
    bound_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
together = threading.Barrier(12)

def allocate():
    libc.malloc(1000)
    together.wait(60)

threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
stdout = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, stdout)
libc.fflush(stdout)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="the C library is not glibc")
@pytest.mark.parametrize("is_bound", [True, False])
def test_the_number_of_arenas_is_bounded(is_bound: bool):
    program = PROGRAM.format(is_bound=is_bound)
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert (said.count("<heap nr=") <= NUM_ARENAS) is is_bound
