"""Workers, and what they exchange with the loader.

``messages`` lists the kinds of messages. ``worker`` is the loop of a worker, in a process or a thread. ``pickling`` pickles objects
whose tensors are sent as they are. ``page_locked`` page-locks the memory that workers write to.
"""
