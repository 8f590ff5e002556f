"""Workers, and their communication with the loader.

``messages`` defines the kinds of messages. ``worker`` is the main loop of a worker, in a process or
a thread. ``pickling`` pickles objects but sends their tensors separately. ``page_locked``
page-locks the memory that workers write to.
"""
