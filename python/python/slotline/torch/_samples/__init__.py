"""From a dataset to a batch: ``fetch`` reads the samples of a batch, ``collate`` makes a batch of them."""
