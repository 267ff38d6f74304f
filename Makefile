# Every target makes what it needs: a virtual environment in .venv, from Python 3.11 and pip.
PYTHON ?= python3.11
BIN := .venv/bin

.PHONY: demo test lint clean

demo: .venv/ready
	$(BIN)/bert-tf demo --output_dir=demo

# In as many processes as there are cores, file by file, the longest files first.
test: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/python -m pytest -n auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder

lint: .venv/ready
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

# Made again when the declared or pinned dependencies change.
.venv/ready: setup.py constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv demo
