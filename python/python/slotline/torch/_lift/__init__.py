"""Native execution of the transforms of torchvision's datasets, with the same results and random
numbers.

torchvision's own code runs, but on a :class:`~slotline.torch._lift.drawing.Drawing` in place of the
PIL image. A drawing records the operations, while that code draws the random numbers. The pixels
are computed at the end, directly in the batch. Whatever is not supported is left to torchvision.
"""
