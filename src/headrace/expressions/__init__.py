"""Regular expressions that match in linear time: topics, transactional ids, client metrics."""
