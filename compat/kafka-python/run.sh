#!/usr/bin/env bash
# run.sh HOST:PORT RESULTS.xml [pytest arguments]: kafka-python's own integration tests against a broker.
# Ends with 0 when the tests ran (the results say how), and with 75 when the tests could not be brought.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
if (( $# < 2 )); then
  echo "usage: ${0##*/} HOST:PORT RESULTS.xml [pytest arguments]" >&2
  exit 2
fi
address=$1
results=$(realpath -m "$2")
shift 2

python=${PYTHON:-$root/.venv/bin/python}
version=$(sed -n 's/^kafka-python==\([^ ;]*\).*/\1/p' "$root/requirements.lock")
target=$root/.tools/kafka-python/$version

if [[ ! -f $target/.complete ]]; then
  echo "fetching the sources of kafka-python $version into ${target#"$root"/}"
  rm -rf "$target"
  mkdir -p "$target"
  "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
    --dest "$target" "kafka-python==$version" || { echo "kafka-python $version could not be fetched" >&2; exit 75; }
  tar -xzf "$target"/kafka*python-"$version".tar.gz -C "$target" --strip-components=1 --no-same-owner
  touch "$target/.complete"
fi

# The sdist leaves out these two files, and its tests import both.
touch "$target/test/__init__.py"
cp "$here/external_service.py" "$target/test/service.py"

cd "$target"
# Its fixtures insist on a folder with a Kafka in it, and then do not look inside.
export KAFKA_ROOT=$target
code=0
KAFKA_URI=kafka://$address KAFKA_VERSION=${KAFKA_VERSION:-4.3} "$python" -m pytest \
  -p no:headrace -p no:cacheprovider --junit-xml="$results" --log-level=WARNING --timeout=90 -q \
  test/integration/test_{admin,consumer,producer}_integration.py "$@" || code=$?
# 1 says that some tests failed: that is a result, and tests.allow judges it.
(( code <= 1 )) || exit "$code"
