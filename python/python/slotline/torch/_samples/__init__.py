"""From a dataset to a batch: ``fetch`` reads the samples of a batch, ``collate`` combines them."""
