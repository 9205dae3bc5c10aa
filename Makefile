# One environment in .venv, made once: its stamps are newer than what decides its contents. The demo needs less than the
# tests do, which add to it. pip compiles nothing: Python does, of what is imported, which is a small part.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MADE := $(VENV)/.made
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt

LOAD_TOOL := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(BIN)/perf_analyzer)

# Tests that compute and time nothing: they may share the machine.
COMPUTING := $(addprefix tests/,audio chain checkpoint config demo_voice engine kernels lora metrics model oracle parity scheduler text vae voices)
# Tests that ask servers, or start and kill processes, and whose deadlines leave room for others: several may share the
# machine, each with a server of its own. The longest come first, so that all end together.
ASKING := tests/test_readme.py $(addprefix tests/,worker cli) $(wildcard tests/server/test_*_served.py) \
  $(patsubst %,tests/server/test_%.py,traps_lifecycle reloads several_models gate_queue gate_opens cancel_phases crowd \
    cancel_random triton_server small_shared_memory bad_requests loading traps_protocol installation log ports) \
  $(addprefix tests/,api fuzz deploy client benchmarks serving control children doors local soak tracing test_operating.py \
    test_prepare.py test_traps.py test_triton_crashes.py)

.PHONY: demo test soak lint lock clean
.DEFAULT_GOAL := demo
.NOTPARALLEL:

demo: $(DEMO)  ## serve the demo checkpoint, stream a sentence into demo.wav and demo.mp3
	@$(BIN)/voxcpm-triton demo

test: lint $(LOAD_TOOL)  ## lint, types, then the whole suite with a real tritonserver
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope $(COMPUTING)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder $(ASKING)
	@$(BIN)/python -m pytest $(addprefix --ignore=,$(COMPUTING) $(ASKING))

soak: $(STAMP) $(LOAD_TOOL)  ## what takes long: 10,000 requests and 2,000 odd ones; writes soak-report.json and soak-report.txt
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m soak --timeout 7200

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/mypy

# The image's Python and platform, the versions of constraints.txt.
lock: $(STAMP)  ## requirements.lock, what the Dockerfile installs, with hashes
	@$(INSTALL) uv
	@$(BIN)/python -m uv pip compile pyproject.toml --extra tracing --no-config --constraint constraints.txt \
	  --python-version 3.12 --python-platform x86_64-manylinux_2_28 --generate-hashes --no-annotate \
	  --custom-compile-command 'make lock' --quiet --output-file requirements.lock

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis demo.wav demo.mp3 \
	  soak-report.json soak-report.txt

$(BIN)/perf_analyzer: benchmarks/install_perf_analyzer.py $(STAMP)
	@$(BIN)/python -m benchmarks.install_perf_analyzer

$(MADE): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo "make: $(PYTHON) is $$($(PYTHON) --version 2>&1 || true); Python 3.10, 3.11 or 3.12 is needed:" \
	       "make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(DEMO): $(MADE)
	@echo "Installing what the demo needs into $(VENV) (a minute or two, once) ..."
	@$(INSTALL) --editable '.[server]'
	@touch $@

$(STAMP): $(MADE)
	@echo "Installing what the tests need into $(VENV) (a few minutes, once) ..."
	@$(INSTALL) --editable '.[server,test]'
	@$(INSTALL) --no-deps voxcpm
	@touch $(DEMO) $@
