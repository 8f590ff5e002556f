"""The iterators of a ``DataLoader``, one for each way to load.

``base`` has what all of them share: the order of random draws, states, statistics and errors.
``inline`` loads in the loop's thread. ``native`` copies rows of tensors that a dataset holds in
memory. ``engine`` has slotline's own datasets loaded by its engine. ``processes`` uses worker
processes, and ``threads`` uses threads with the same protocol.
"""
