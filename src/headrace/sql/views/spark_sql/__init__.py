"""Spark's SQL as SQLite's, over the files of views.

Every expression is translated with its type, by Spark's rules. Only what is known to mean the same
is translated; everything else raises NotAnswerable, and Spark answers the query: functions that are
not in the tables, conversions that may fail, and at run time results that Spark refuses, such as a
division by zero.
"""
