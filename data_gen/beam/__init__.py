"""The steps of data generation as an Apache Beam pipeline."""
