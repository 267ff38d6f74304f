# Every target makes what it needs: a virtual environment in .venv, from Python and pip.
BIN := .venv/bin

# The first of these that runs and has a supported version; make PYTHON=PATH takes another.
SUPPORTED := 3.11 3.12 3.13
PYENV_ROOT ?= $(HOME)/.pyenv
PYTHONS = $(SUPPORTED:%=python%) python3 python \
	$(foreach version,$(SUPPORTED),$(wildcard $(PYENV_ROOT)/versions/$(version).*/bin/python))
CHECK := -c 'import ensurepip, sys; \
	sys.exit("%d.%d" % sys.version_info[:2] not in "$(SUPPORTED)".split())' 2> /dev/null
PYTHON ?= $(shell for python in $(PYTHONS); do \
	$$python $(CHECK) && echo $$python && break; done)

# An environment in the folder of the target; one of another Python is made anew.
define environment
	@$(or $(PYTHON),false) $(CHECK) || { printf '%s\n' \
		"Received: $(if $(PYTHON),$(PYTHON) ($$($(PYTHON) -V 2>&1 | head -n 1)),no such Python)" \
		"Expected: Python $(firstword $(SUPPORTED)) to $(lastword $(SUPPORTED)) with venv and pip" \
		"To do: install one, or name it: make PYTHON=/path/to/python $(MAKECMDGOALS)" >&2; exit 1; }
	@test "$$($(@D)/bin/python -V 2>&1)" = "$$($(PYTHON) -V 2>&1)" || $(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade pip
endef

# "again" if PYTHON is given and the environment in a folder has another one.
other = $(if $(filter command environment,$(origin PYTHON)),$(shell \
	test "$$($(1)/bin/python -V 2>&1)" = "$$($(PYTHON) -V 2>&1)" || echo again))
.PHONY: again
again:

.PHONY: demo test matrix test-2.20 test-tpu lint docs dist audit lock speed clean

demo: .venv/ready
	PATH="$(BIN):$$PATH" examples/demo.sh demo

# In as many processes as there are cores, file by file, the longest files first.
test: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

# Every command and public function with every format of model and way to write a path, each pair in
# a process of its own; `make test` runs a few.
matrix: .venv/ready
	BERT_TF_MATRIX_ALL=1 $(BIN)/python -m pytest tests/matrix -n auto --maxprocesses=4

# The tests under TensorFlow 2.20, the last with a build for TPUs.
test-2.20: .venv-2.20/ready
	.venv-2.20/bin/python -m pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

# What needs no XLA under that build itself, without a TPU: on CPUs it has none.
NEED_NO_XLA := $(addprefix tests/,checkpoints data data_gen modeling planning serving squad tasks \
	tokenization training test_config.py test_declarations.py test_errors.py test_files.py \
	test_imports.py)
test-tpu: .venv-tpu/ready
	TPU_LIBRARY_PATH=/nonexistent .venv-tpu/bin/python -m pytest -n auto --maxprocesses=4 \
		--dist=loadfile --no-loadscope-reorder $(NEED_NO_XLA)

lint: .venv/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/python -m pytest tests/test_typing.py

# Examples/s of a training step, kept in speed.jsonl; warns if it is 15 % slower than the last time.
speed: .venv/ready
	$(BIN)/python benchmarks/train_step.py --sizes=2x128,4x256 --record=speed.jsonl

# The pages of docs/ as a site in build/site; a broken link or anchor is an error. The API is read from
# the sources, so the package and TensorFlow are not installed for it.
docs: .venv-docs/ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.venv-docs/ready: docs/requirements.txt $(call other,.venv-docs)
	$(environment)
	.venv-docs/bin/python -m pip install --quiet --requirement docs/requirements.txt
	touch $@

# The package in dist/, as it is uploaded; an incomplete description is an error.
dist: .venv-dist/ready
	rm -rf dist build/lib build/bdist.*
	.venv-dist/bin/python -m build
	.venv-dist/bin/twine check --strict dist/*
	@! grep -n 'github.com/OWNER' setup.py || echo 'Not to be uploaded: set REPOSITORY in setup.py.'

.venv-dist/ready: $(call other,.venv-dist)
	$(environment)
	.venv-dist/bin/python -m pip install --quiet "build>=1.2,<2" "twine>=6.1,<8"
	touch $@

# Known vulnerabilities in the pinned packages; needs the network. Fails on a finding whose id is not
# in ACKNOWLEDGED (SECURITY.md says why it does not matter), and on a package it cannot look up.
ACKNOWLEDGED :=
audit: .venv-audit/ready
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt \
		$(ACKNOWLEDGED:%=--ignore-vuln=%)

.venv-audit/ready: $(call other,.venv-audit)
	$(environment)
	.venv-audit/bin/python -m pip install --quiet "pip-audit>=2.9,<3"
	touch $@

# What the image for `bert-tf serve` installs, with the hashes of all builds; needs the network.
lock: .venv-lock/ready
	.venv-lock/bin/uv pip compile --quiet --universal --python-version=3.11 --extra=serve \
		--constraint=constraints.txt --generate-hashes --no-annotate --no-header \
		--output-file=examples/serving/requirements.txt setup.py

.venv-lock/ready: $(call other,.venv-lock)
	$(environment)
	.venv-lock/bin/python -m pip install --quiet "uv>=0.9,<1"
	touch $@

# Made again when the declared or pinned dependencies change.
.venv/ready: setup.py constraints.txt $(call other,.venv)
	$(environment)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv-2.20/ready: setup.py constraints.txt $(call other,.venv-2.20)
	$(environment)
	sed -E 's/^(tensorflow|tensorflow-serving-api)==.*/\1==2.20.0/; s/^(tensorflow-text)==.*/\1==2.20.1/' \
		constraints.txt > .venv-2.20/constraints.txt
	.venv-2.20/bin/python -m pip install --quiet --constraint .venv-2.20/constraints.txt \
		--editable ".[dev]"
	touch $@

.venv-tpu/ready: setup.py constraints.txt requirements-tpu.txt $(call other,.venv-tpu)
	$(environment)
	.venv-tpu/bin/python -m pip install --quiet --requirement requirements-tpu.txt \
		"hypothesis>=6.100,<7" "psutil>=6,<8" "pytest>=8,<10" "pytest-xdist>=3.6,<4" \
		"tokenizers>=0.22,<0.24" "sentencex>=1.0.32,<2" \
		"scikit-learn>=1.5,<2" "scipy>=1.13,<2" "seqeval>=1.2.2,<2"
	.venv-tpu/bin/python -m pip install --quiet --no-deps tensorflow-text==2.20.1 --editable .
	touch $@

clean:
	rm -rf .venv .venv-2.20 .venv-tpu .venv-audit .venv-docs .venv-dist .venv-lock build demo dist
