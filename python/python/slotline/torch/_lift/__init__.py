"""Pictures of torchvision's datasets, whose transforms are done natively, with the same bits and the same random numbers.

torchvision's own code runs, but with a :class:`~slotline.torch._lift.drawing.Drawing` in the place of the PIL image: it notes what
is done with it, and what is drawn is drawn by that code. The pixels are made at the end, in the batch. Whatever is not known is done
as torchvision does it.
"""
