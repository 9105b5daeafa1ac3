"""For all tests: the programs that they start can be interrupted, wherever the tests run."""

import signal

# A shell starts background jobs with SIGINT ignored, and children inherit that. A handler of our
# own is not inherited: programs begin with the default again, and Ctrl-C reaches them.
signal.signal(signal.SIGINT, signal.default_int_handler)
