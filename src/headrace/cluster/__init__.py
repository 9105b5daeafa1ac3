"""Cluster metadata: the image, the controller's decisions, and the metadata store."""
