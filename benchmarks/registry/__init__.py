"""The schema registry beside Apicurio Registry, on the same broker and in the same run."""
