"""The HTTP source, which polls an address, and the HTTP sink, which sends records to one."""
