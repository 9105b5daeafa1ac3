"""`headrace serve`, and the files of a stopped broker."""
