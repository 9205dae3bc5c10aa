"""More instances of the Triton model than engines: the others pass requests on to the one that has the engine.

Triton's batcher, when it has a queue policy, looks for a free instance when a request arrives, when one was executed,
and every half second; with a single instance a burst of requests trickles in over seconds.
"""
