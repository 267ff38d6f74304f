"""Records -> batches.

row         number of a record in all files, in their order           shards.RecordFiles
block       consecutive records of a file, read in one go             records.BlockIndex
sampler     position 0, 1, 2, ... of a run -> row                     batches.ShuffledSampler
batch t     the rows at positions t * B to (t + 1) * B - 1            batches.Batches
by length   rows of similar length side by side; padded lengths       by_length
in memory   the same for texts to predict and for tables              grouping
"""
