# Every target makes what it needs: a virtual environment in .venv, from Python 3.11 and pip.
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: demo test lint audit clean

demo: .venv/ready
	$(BIN)/bert-tf demo --output_dir=demo

# In as many processes as there are cores, file by file, the longest files first.
test: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

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

clean:
	rm -rf .venv .venv-audit demo
