"""Started by Spark in place of Python: has the fork server run a module, and waits for its end.

It is run as a file, without site-packages, so that it starts within milliseconds. It passes its
arguments, environment and files to the fork server, and then becomes `cat`, which holds the
connection with less memory than Python: if Spark ends it, the connection closes, and the fork
server ends the worker; if the worker ends, the fork server closes the connection, and `cat` ends.
"""

import array
import json
import os
import socket
import sys

SOCKET_VARIABLE = "HEADRACE_FORK_SERVER"
PYTHON_VARIABLE = "HEADRACE_WORKER_PYTHON"


def main() -> None:
    arguments = sys.argv[1:]
    path = os.environ.get(SOCKET_VARIABLE)
    connection = _connected(path) if path and arguments[:1] == ["-m"] else None
    if connection is None:
        # For instance `python -c` for a version, or a server that has ended.
        python = os.environ[PYTHON_VARIABLE]
        os.execv(python, [python, *arguments])
    request = json.dumps(
        {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    ).encode()
    files = array.array("i", [0, 1, 2])
    connection.sendmsg(
        [len(request).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
    )
    connection.sendall(request)
    os.dup2(connection.fileno(), 0)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
    os.execv("/bin/cat", ["cat"])


def _connected(path: str) -> "socket.socket | None":
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        return None
    return connection


if __name__ == "__main__":
    main()
