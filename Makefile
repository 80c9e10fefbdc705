# Everything starts here; `make rehearse` and `make test` do all set-up themselves.
# Options for the program behind a target go into ARGS: make test ARGS="tests/plan -x"

SHELL := /bin/sh
ARGS ?=
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
SETUP = $(if $(PYTHON),$(PYTHON),$(error Python 3.11 or newer is needed and not on PATH; install it with your system's package manager)) scripts/setup.py

.PHONY: rehearse test test-slow lint setup browser alerts lock clean

rehearse: setup
	.venv/bin/gameday rehearse $(ARGS)

# A file stays on one worker, so that the tests of a file share their servers.
test: setup browser
	.venv/bin/pytest -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

# Whole game-days that are killed, cancelled and interrupted in every step: minutes.
test-slow: setup
	.venv/bin/pytest -m slow $(ARGS)

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/mypy scripts/setup.py scripts/alert_manifest.py

setup:
	@$(SETUP) venv tools

browser:
	@$(SETUP) browser

# The PrometheusRule manifest is made from the rule file; a test tells when this was forgotten.
alerts: setup
	.venv/bin/python scripts/alert_manifest.py

# Newer versions: make lock ARGS=--upgrade
lock: setup
	.venv/bin/python -m pip install --quiet uv
	.venv/bin/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --quiet -o requirements.lock $(ARGS)

clean:
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis
