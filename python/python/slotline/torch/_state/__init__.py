"""How far a pass is, and the state from which a loader resumes.

``indices`` draws the batches of indices and knows which of them are done; ``progress`` has this and the workers' states for one
pass; ``entries`` has the names in a state, and how the states of datasets and samplers are read and restored; ``generators``
packs the states of random number generators; ``checks`` finds damaged states. ``stats`` has the figures of a pass.
"""
