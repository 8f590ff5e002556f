"""The progress of a pass, and the state from which a loader resumes.

``indices`` draws the batches of indices and records which are done. ``progress`` combines it with
the workers' states for one pass. ``entries`` has the names of a state's entries, and saves and
restores the states of datasets and samplers. ``generators`` packs the states of random generators.
``checks`` detects damaged states. ``stats`` has the statistics of a pass.
"""
