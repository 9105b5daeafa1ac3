"""Tables as local views, from which pull queries are answered."""
