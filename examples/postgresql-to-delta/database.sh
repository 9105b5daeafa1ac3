#!/usr/bin/env bash
# Starts a PostgreSQL with logical decoding on port 5432, in a new folder, until Ctrl-C.
set -euo pipefail
programs=$(dirname "$(ls /usr/lib/postgresql/*/bin/postgres | tail -1)")
folder=$(mktemp -d)
user=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses to run as root.
  chown nobody "$folder"
  user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
fi
cd "$folder"
"${user[@]}" "$programs/initdb" -D data -U postgres -A trust > initdb.txt
exec "${user[@]}" "$programs/postgres" -D data -k "$folder" -c wal_level=logical
