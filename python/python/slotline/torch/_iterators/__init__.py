"""The iterators of a ``DataLoader``, one for each way to load.

``base`` has what all of them share: the order of random draws, states, figures, and errors. ``inline`` loads in the loop's
thread, ``native`` copies rows of tensors that a dataset holds, ``processes`` has worker processes, and ``threads`` has threads
that speak the same protocol.
"""
