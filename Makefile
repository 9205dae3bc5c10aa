# One environment in .venv, made once: the stamp is newer than what decides its contents.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

LOAD_TOOL := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),$(BIN)/perf_analyzer)

# Tests that compute and time nothing: they may share the machine.
COMPUTING := $(addprefix tests/,audio chain checkpoint config demo_voice engine kernels lora metrics model oracle parity scheduler text vae voices)
# Tests that ask servers and hold them to no deadline of a second: two servers may share the machine.
ASKING := $(addprefix tests/,api benchmarks cli client control deploy fuzz serving test_operating.py test_prepare.py \
  test_readme.py) \
  $(wildcard tests/server/test_*_served.py)

.PHONY: demo test soak lint clean
.DEFAULT_GOAL := demo

demo: $(STAMP)  ## serve the demo checkpoint, stream a sentence into demo.wav and demo.mp3
	@$(BIN)/voxcpm-triton demo

test: lint $(LOAD_TOOL)  ## lint, types, then the whole suite with a real tritonserver
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadscope $(COMPUTING)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist loadscope $(ASKING)
	@$(BIN)/python -m pytest $(addprefix --ignore=,$(COMPUTING) $(ASKING))

soak: $(STAMP) $(LOAD_TOOL)  ## what takes long: 10,000 requests and 2,000 odd ones; writes soak-report.json and soak-report.txt
	@$(BIN)/python -m pytest -m soak --timeout 7200

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/mypy

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis demo.wav demo.mp3 \
	  soak-report.json soak-report.txt

$(BIN)/perf_analyzer: benchmarks/install_perf_analyzer.py $(STAMP)
	@$(BIN)/python -m benchmarks.install_perf_analyzer

$(STAMP): pyproject.toml setup.py constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || { \
	  echo "make: $(PYTHON) is $$($(PYTHON) --version 2>&1 || true); Python 3.10, 3.11 or 3.12 is needed:" \
	       "make PYTHON=python3.11" >&2; exit 1; }
	@rm -f $@
	@$(PYTHON) -m venv --clear $(VENV)
	@echo "Installing into $(VENV) (a few minutes, once) ..."
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[server,test]'
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps voxcpm
	@touch $@
