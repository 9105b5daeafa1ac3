# Headrace: `make up` starts the platform, `make test` checks everything.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
LOCK    := requirements.lock
DATA    ?= data
LISTEN  ?= 127.0.0.1:9092
DEMO    ?= yes
SECURE  ?= no
SECONDS ?= 60
PYTEST_ARGS ?=
WORKERS ?= 4
OLDEST_PYSPARK ?= 4.2.0
BENCH_ARGS  ?=

PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LOCK)

.DEFAULT_GOAL := help
.PHONY: help up down demo cluster-up check test endurance oldspark portable compat lint bench dist lock install dev tools console clean

# Tests are compiled once and not in every run, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

help: ## say what can be done
	@echo "Headrace"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1   \2/p' $(MAKEFILE_LIST)
	@echo
	@echo "  LISTEN=HOST:PORT and DATA=FOLDER choose where \`make up\` listens and keeps its data."
	@echo "  SECURE=yes starts it with TLS, logins and permissions, and without the demo."
	@echo "  DEMO=no starts the broker only. SECONDS=60 is how long \`make demo\` runs."

up: $(VENV)/.installed ## install what is locked, start the broker, show the demo live
	@$(MAKE) --no-print-directory console || echo "going on without the web console"
	@SECURE="$(SECURE)" scripts/up "$(LISTEN)" "$(DATA)"
	@scripts/show-demo "$(if $(filter yes,$(SECURE)),no,$(DEMO))" "$(LISTEN)" "$(DATA)"

down: ## stop what `make up` started
	@scripts/down "$(DATA)"

demo: $(VENV)/.installed ## run the demo for a minute on a broker of its own, with a summary and a picture
	@scripts/install-spark
	@$(BIN)/python examples/sensors/demo.py --seconds "$(SECONDS)" --folder "$(DATA)/demo"

cluster-up: dev tools ## three brokers and a ZooKeeper; leaders are killed while clients run (SECONDS=60)
	@$(BIN)/python examples/cluster/failover.py --seconds "$(SECONDS)" --jars "$$(echo .tools/zookeeper/*)"

check: lint ## lint, types and the tests that start no process and are not slow: under a minute
	$(BIN)/python -m pytest --fast -q -n 2 $(PYTEST_ARGS)

test: dev tools $(VENV)/.console $(VENV)/.spark-classes lint ## install everything the tests need and run them all
	@scripts/test $(WORKERS) $(PYTEST_ARGS)

endurance: dev tools ## repeat the tests of faults hundreds of times (hours); `make test` has a few of each
	$(BIN)/python -m pytest --endurance $(PYTEST_ARGS)

oldspark: tools ## run the tests that start Spark on the oldest PySpark that is supported
	@PYTHON="$(PYTHON)" scripts/test-on-pyspark "$(OLDEST_PYSPARK)" $(PYTEST_ARGS)

portable: dev ## run the broker's tests without what only Linux has, as on macOS
	HEADRACE_PORTABLE=1 $(BIN)/python -m pytest -n 2 tests/broker $(PYTEST_ARGS)

compat: $(VENV)/.installed-dev ## run other systems against the broker: all, or `make compat NAME...` (an hour; for every night)
	@$(BIN)/python -m tests.compat $(ENTRIES)

# The words after `compat` are names of entries and not of targets.
ifeq (compat,$(firstword $(MAKECMDGOALS)))
ENTRIES := $(filter-out compat,$(MAKECMDGOALS))
.PHONY: $(ENTRIES)
$(ENTRIES): ; @:
endif

lint: $(VENV)/.installed-dev ## ruff, mypy and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.installed-dev tools ## compare with Apache Kafka; BENCH_ARGS="--quick --only NAME"
	@scripts/debian-packages gcc libc6-dev libssl-dev || true
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

dist: $(VENV)/.installed-dev $(VENV)/.console ## build the wheel and the source distribution into dist/
	@scripts/dist

install: $(VENV)/.installed ## make .venv with the broker and the command line

dev: $(VENV)/.installed-dev ## make .venv with everything that development needs

tools: $(VENV)/.tools-checked ## bring Kafka's Java tools and the Debian packages of the tests

console: $(VENV)/.console ## build the pages of the web console (brings Node.js if there is none)

lock: ## choose the newest versions that pyproject.toml allows (needs uv)
	uv pip compile --universal --python-version 3.11 --upgrade --all-extras \
	  --no-emit-index-url --no-header pyproject.toml -o $(LOCK)

clean: ## remove .venv, .tools and what tests leave behind (not the data)
	rm -rf $(VENV) .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Stamps: nothing is installed again while pyproject.toml and the lock stay the same.

$(VENV)/bin/python:
	@scripts/make-venv "$(PYTHON)" "$(VENV)"

$(VENV)/.installed: pyproject.toml $(LOCK) | $(VENV)/bin/python
	@echo "installing headrace into $(VENV)"
	@$(PIP_INSTALL) -e '.[security,services,sql]'
	@$(BIN)/python -m compileall -q src
	@touch $@

$(VENV)/.installed-demo: pyproject.toml $(LOCK) | $(VENV)/bin/python
	@echo "installing Spark for Python into $(VENV): some 500 MB, once"
	@$(BIN)/python -m pip install --disable-pip-version-check -c $(LOCK) -e '.[demo]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(LOCK) | $(VENV)/bin/python
	@echo "installing headrace and its development tools into $(VENV)"
	@$(PIP_INSTALL) -e '.[dev]'
	@$(BIN)/python -m compileall -q src
	@touch $(VENV)/.installed $(VENV)/.installed-demo $@

$(VENV)/.spark-classes: $(VENV)/.installed-dev tests/support/spark_classes.py
	@echo "archiving Spark's classes for the tests"
	@$(BIN)/python -m tests.support.spark_classes >/dev/null && touch $@ || echo "there is none: Spark will start more slowly"

$(VENV)/.console: $(shell find web -path web/node_modules -prune -o -type f -print) scripts/build-console | $(VENV)/bin/python
	@PYTHON="$(PYTHON)" scripts/build-console
	@touch $@

$(VENV)/.tools-checked: scripts/java/pom.xml scripts/java/spark-kafka.pom.xml scripts/java/zookeeper.pom.xml scripts/java/hadoop.pom.xml scripts/java/spark-avro.pom.xml scripts/java/flink.pom.xml scripts/moto-requirements.txt scripts/fetch-java-tools scripts/fetch-moto scripts/debian-packages | $(VENV)/bin/python
	@scripts/debian-packages kcat openjdk-17-jre-headless maven prometheus chromium fonts-dejavu-core || true
	@scripts/debian-packages krb5-kdc krb5-admin-server krb5-user libsasl2-modules-gssapi-mit || true
	@scripts/debian-packages sslscan testssl.sh || true
	@scripts/debian-packages postgresql mariadb-server-core mariadb-client-core || true
	@scripts/debian-packages mosquitto rabbitmq-server || true
	@scripts/fetch-moto $(BIN)/python || echo "the tests that need S3 will be skipped"
	@scripts/fetch-java-tools && touch $@ || echo "the tests that need Java will be skipped"
