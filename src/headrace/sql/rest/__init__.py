"""The REST interface, with ksqlDB's paths and bodies."""
