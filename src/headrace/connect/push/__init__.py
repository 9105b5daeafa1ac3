"""Sources that receive messages: the spool on disk, and the source that is read from it."""
