"""Values of a data set that all builders share: content, labels, options, partition, origin."""
