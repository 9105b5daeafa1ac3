"""Records of a topic: read by offset and time, followed live, searched, and produced."""
