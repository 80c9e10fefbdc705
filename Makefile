# Everything starts here; `make rehearse` and `make test` do all set-up themselves.
# Options for the program behind a target go into ARGS: make test ARGS="tests/plan -x"

SHELL := /bin/sh
ARGS ?=
MAY ?=
# Modules are compiled once, and not again by each of the hundreds of processes that a test run starts.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$p && break; done)
SYSTEM_PYTHON = $(if $(PYTHON),$(PYTHON),$(error Python 3.11 or newer is needed and not on PATH; install it with your system's package manager))
SETUP = $(SYSTEM_PYTHON) scripts/setup.py
COMPILE = .tools/uv/bin/uv --quiet pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
LAB = $(SYSTEM_PYTHON) scripts/build_lab.py

.PHONY: rehearse test nightly test-gate test-kubesim test-slow test-lab test-control-plane test-gpu test-dcgm torture lint lint-types lint-house setup browser compiler helm bundle lab lab-release lab-topology lab-version image alerts docs lock clean

rehearse: setup
	.venv/bin/gameday rehearse $(ARGS)

FAST = -m "not gate and not slow and not browser and not conformance and not lab and not control_plane and not gpu"
# A file's tests share a worker, and so its servers.
SHARED = --dist loadfile --no-loadscope-reorder --durations=25
# `make test` plays its parts side by side, because many tests wait, and deals out the files by the seconds that they
# took. A pool of workers would be shorter to write, but each of its workers collects every test.
PARTS = 3
LIMITED = -p tests.support.fast_suite
# The rules of the house: imports, docstrings, sources. `make lint` holds them.
HOUSE = $(addprefix tests/,test_arrows.py test_docstrings.py test_sources.py)

test: setup compiler
ifeq ($(ARGS),)
	@echo "$(PARTS) parts side by side; each prints its results at its end"
	@$(MAKE) --no-print-directory --keep-going --jobs=$(PARTS) --output-sync=target \
		$(addprefix test-part-,$(shell seq $(PARTS)))
else
	.venv/bin/pytest $(FAST) $(LIMITED) -n 3 $(SHARED) $(ARGS)
endif

test-part-%:
	@PYTHONFAULTHANDLER=1 .venv/bin/pytest $(FAST) $(LIMITED) --part=$*/$(PARTS) -q -p no:xdist -p no:cacheprovider \
		--durations=25 $(addprefix --ignore=,$(HOUSE))

# Whole game-days, one of each kind, and one on the lab where its programs are built: what every change has to pass. One
# worker, because two would only take the processor from each other.
GATE = $(addprefix tests/,game_days cli/test_up.py rehearsal/lab/test_rights.py)
test-gate: setup
	@$(LAB) copy
	.venv/bin/pytest -m gate -p no:xdist -p no:cacheprovider --durations=0 --durations-min=1 $(GATE) $(ARGS)

# Everything about the API server in Python, with all recorded answers of the real one; a part of it is in `make test`.
test-kubesim: setup
	.venv/bin/pytest -m "not slow and not lab" -n 2 $(SHARED) tests/kubesim $(ARGS)
	@test -n "$(ARGS)" || .venv/bin/python scripts/kubesim_digest.py record

# Whole game-days that are killed, cancelled and interrupted in every step, and the pages in Chromium: minutes.
test-slow: setup browser helm
	@$(SETUP) postgres
	.venv/bin/pytest -m "(slow or browser) and not gate and not lab" -n 3 $(SHARED) $(ARGS)

# Whatever needs the real control plane; `make lab` builds it.
test-lab: setup helm
	@$(SETUP) haproxy node prefect-kubernetes
	@if why=$$($(LAB) find 2>&1 >/dev/null); then exec .venv/bin/pytest -m lab -n 3 $(SHARED) $(ARGS); \
	else echo "skipping the lab suite; $$why"; fi

# The shipped plans of the control plane, each on a lab of its own: minutes each, so they are no part of CI, and one after
# the other, because each of them measures its API servers.
test-control-plane: setup
	@$(SETUP) haproxy
	$(LAB) find >/dev/null
	.venv/bin/pytest -m control_plane -p no:xdist tests/control_plane $(ARGS)

# Whatever needs a real GPU; without one every test is skipped with its reason. It reads and loads the GPUs, and changes
# nothing: make test-gpu MAY=change,reset allows settings that go in and out again, and a reset.
test-gpu: setup
	@$(SETUP) gpu
	GAMEDAY_TEST_GPU_MAY="$(MAY)" .venv/bin/pytest -m gpu -p no:xdist tests/gpu $(ARGS)

# What a real DCGM recorded, and our faults in and out of one: GAMEDAY_DCGM=host:port names a host engine that nobody relies
# on, GAMEDAY_DCGM_EXPORTER=http://… its exporter's page if there is one, and dcgmi is on PATH. Without them it skips.
test-dcgm: setup
	.venv/bin/pytest -p no:xdist -rs tests/rehearsal/dcgm $(ARGS)

# Game-days that are killed, cancelled, put to sleep and robbed of their servers: is anything left behind?
# make torture ARGS="--seed 7 --runs 100", or --all; tests/torture says more.
torture: setup
	.venv/bin/python -m tests.torture $(ARGS)

# Every suite that can be played here, one after the other: hours. make nightly ARGS="--rounds 2 --hours 8 --suite lab"
nightly: setup compiler
	@.venv/bin/python -m tests.nightly $(ARGS)

lint: setup
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync=target lint-types lint-house

lint-types:
	.venv/bin/mypy
	.venv/bin/mypy scripts/setup.py scripts/bundle.py scripts/metal.py scripts/alert_manifest.py scripts/runbooks.py scripts/build_lab.py

lint-house:
	.venv/bin/pytest -q -p no:xdist -p no:cacheprovider $(HOUSE)

setup:
	@$(SETUP) venv tools

browser:
	@$(SETUP) browser

compiler:
	@$(SETUP) compiler

# For the tests of the chart in deploy/, which skip without it; 69 is the status of scripts/build_lab.py where there is no Go.
helm:
	@$(LAB) build helm || test $$? -eq 69

# A real etcd, kube-apiserver, controller-manager and scheduler, and a load balancer.
lab:
	@$(LAB) build
	@$(SETUP) haproxy node

# An older API server beside it, for the arms of a plan: make lab-release VERSION=1.32
lab-release:
	@$(LAB) release "$(VERSION)"

# The topology-aware scheduler, which only one shipped plan needs: minutes of building that `make lab` does not take.
lab-topology:
	@$(LAB) build topology

# Another release of Kubernetes: make lab-version VERSION=v1.38.0, then make lab
lab-version:
	@$(LAB) pin "$(VERSION)"

# The image, with Buildah on a base from Debian's archive: minutes, so it is no part of CI. make image ARGS=gpu
image:
	@scripts/build_image.sh $(ARGS)

# What a GPU machine without internet needs, in two archives (docs/metal.md); minutes of compressing.
bundle: setup
	@$(SYSTEM_PYTHON) scripts/bundle.py dist

# The PrometheusRule manifests are made from the rule files, and from rules and plans what a runbook says of urgency, waiting
# and plans; tests tell when this was forgotten.
alerts: setup
	.venv/bin/python scripts/alert_manifest.py
	.venv/bin/python scripts/runbooks.py

# What the faults', profiles' and plans' own models say, as pages and as a schema; tests tell when this was forgotten.
docs: setup
	.venv/bin/python -m gameday.faults.docs > docs/faults.md
	.venv/bin/python -m gameday.cluster.docs > docs/profile.md
	.venv/bin/python -m gameday.expect.docs > docs/expectations.md
	.venv/bin/gameday schema --output docs/plan.schema.json

# The workspace's own packages are installed from their folders.
NOT_OURS = --no-emit-package=gpu-gameday \
	$(patsubst packages/%/pyproject.toml,--no-emit-package=gpu-gameday-%,$(wildcard packages/*/pyproject.toml))
# Newer versions: make lock ARGS=--upgrade
lock: setup
	$(COMPILE) pyproject.toml packages/*/pyproject.toml --group dev $(NOT_OURS) -o requirements.lock $(ARGS)
	$(COMPILE) --group pyproject.toml:gpu --constraint requirements.lock -o requirements-gpu.lock $(ARGS)
	$(COMPILE) --group pyproject.toml:setup -o requirements-uv.lock $(ARGS)
	$(COMPILE) --group pyproject.toml:go -o requirements-go.lock $(ARGS)
	$(COMPILE) --group pyproject.toml:cc -o requirements-cc.lock $(ARGS)
	$(COMPILE) --group pyproject.toml:kubernetes-worker --no-deps --constraint requirements.lock -o requirements-prefect-kubernetes.lock $(ARGS)
	$(COMPILE) --group pyproject.toml:postgres --no-deps -o requirements-postgres.lock $(ARGS)

clean:
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis
