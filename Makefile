# Every target makes what it needs: a virtual environment in .venv, from Python 3.11 and pip.
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: demo test test-2.20 test-tpu lint audit clean

demo: .venv/ready
	$(BIN)/bert-tf demo --output_dir=demo

# In as many processes as there are cores, file by file, the longest files first.
test: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

# The same under TensorFlow 2.20, the last with a build for TPUs.
test-2.20: .venv-2.20/ready
	.venv-2.20/bin/python -m pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

# What needs no XLA under that build itself, without a TPU: on CPUs it has none.
NEED_NO_XLA := $(addprefix tests/,checkpoints data data_gen modeling planning serving squad tasks \
	tokenization training test_config.py test_errors.py test_files.py test_imports.py)
test-tpu: .venv-tpu/ready
	TPU_LIBRARY_PATH=/nonexistent .venv-tpu/bin/python -m pytest -n auto --maxprocesses=4 \
		--dist=loadfile --no-loadscope-reorder $(NEED_NO_XLA)

lint: .venv/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

# Known vulnerabilities in the pinned packages; needs the network. Fails on a finding whose id is not
# in ACKNOWLEDGED (SECURITY.md says why it does not matter), and on a package it cannot look up.
ACKNOWLEDGED :=
audit: .venv-audit/ready
	.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt \
		$(ACKNOWLEDGED:%=--ignore-vuln=%)

.venv-audit/ready:
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet "pip-audit>=2.9,<3"
	touch $@

# Made again when the declared or pinned dependencies change.
.venv/ready: setup.py constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

.venv-2.20/ready: setup.py constraints.txt
	$(PYTHON) -m venv .venv-2.20
	.venv-2.20/bin/python -m pip install --quiet --upgrade pip
	sed -E 's/^(tensorflow|tensorflow-serving-api)==.*/\1==2.20.0/; s/^(tensorflow-text)==.*/\1==2.20.1/' \
		constraints.txt > .venv-2.20/constraints.txt
	.venv-2.20/bin/python -m pip install --quiet --constraint .venv-2.20/constraints.txt \
		--editable ".[dev]"
	touch $@

.venv-tpu/ready: setup.py constraints.txt requirements-tpu.txt
	$(PYTHON) -m venv .venv-tpu
	.venv-tpu/bin/python -m pip install --quiet --upgrade pip
	.venv-tpu/bin/python -m pip install --quiet --requirement requirements-tpu.txt \
		"hypothesis>=6.100,<7" "psutil>=6,<8" "pytest>=8,<10" "pytest-xdist>=3.6,<4" \
		"tokenizers>=0.22,<0.24" "sentencex>=1.0.32,<2" \
		"scikit-learn>=1.5,<2" "scipy>=1.13,<2" "seqeval>=1.2.2,<2"
	.venv-tpu/bin/python -m pip install --quiet --no-deps tensorflow-text==2.20.1 --editable .
	touch $@

clean:
	rm -rf .venv .venv-2.20 .venv-tpu .venv-audit demo
