"""Reads text: tokens, types, properties, SELECTs and values."""
