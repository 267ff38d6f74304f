"""Installs `bert-tf`: BERT on TensorFlow 2 and Keras 3."""

import pathlib
import re

from setuptools import find_packages, setup

HERE = pathlib.Path(__file__).parent
# Not by importing the package, which needs the dependencies.
VERSION = re.search('__version__ = "(.+)"', (HERE / "bert_tf/__init__.py").read_text())[1]

# PLACEHOLDER: set the owner before the first release (CONTRIBUTING.md, "Release").
REPOSITORY = "https://github.com/OWNER/bert_tf"
# A package index has no files beside the README: its links and pictures lead to this version's.
FILES = f"{REPOSITORY}/blob/v{VERSION}"
RAW = f"{REPOSITORY}/raw/v{VERSION}"
LONG_DESCRIPTION = re.sub(
    r"(!?)\[([^\]]*)\]\((?![\w+]+:|#)([^)]+)\)",
    lambda link: f"{link[1]}[{link[2]}]({RAW if link[1] else FILES}/{link[3]})",
    (HERE / "README.md").read_text(encoding="utf-8"),
)

EXTRAS = {
    "vocab": ["tokenizers>=0.22,<0.24"],  # bert-tf vocab trains with it
    "wiki": ["sentencex>=1.0.32,<2"],  # sentence splitting for --input_format=wikiextractor
    "torch": ["torch>=2.10"],  # reads pytorch_model.bin without running what is in it
    "hub": ["huggingface_hub>=2.4,<3"],  # fetches --init_checkpoint=hf:OWNER/NAME
    "plot": ["matplotlib>=3.9,<4"],  # pictures of the loss and accuracy curves
}
EXTRAS |= {
    "tasks": ["scikit-learn>=1.5,<2", "scipy>=1.13,<2", "seqeval>=1.2.2,<2"],  # metrics
    # tensorflow-datasets needs importlib_resources without saying so.
    "tfds": ["tensorflow-datasets>=4.9.10,<5", "importlib_resources>=6"],
}
# spreadsheets (.xlsx, .xls) and Parquet files as tables
EXTRAS["tables"] = ["pandas>=2.2,<4", "openpyxl>=3.1,<4", "xlrd>=2,<3", "pyarrow>=17"]
# bert-tf serve
EXTRAS["serve"] = ["starlette>=1,<2", "uvicorn>=0.40,<1", "prometheus-client>=0.22,<1"]
# examples/client.py by gRPC; an export itself needs nothing of it
EXTRAS["serving"] = ["tensorflow-serving-api>=2.20,<2.22"]
# bert-tf export --format=litert, =onnx
EXTRAS["litert"] = ["ai-edge-litert>=2.1,<3"]
EXTRAS["onnx"] = ["tf2onnx>=1.17,<2", "onnxruntime>=1.24,<2"]
# Beam 2.77 wants pillow below 13, protobuf below 7, pyarrow below 26 and python-dateutil below 3,
# all of them older than the pins of constraints.txt: docs/get_started.md has the commands.
EXTRAS["beam"] = ["apache-beam>=2.77,<3"]
EXTRAS["tensorboard"] = ["tensorboard>=2.20,<3"]  # tensorboard --logdir=OUTPUT_DIR
EXTRAS["demo"] = EXTRAS["vocab"] + EXTRAS["plot"]
EXTRAS["notebooks"] = [*EXTRAS["plot"], "jupyterlab>=4.2,<5"]  # examples/notebooks
EXTRAS["dev"] = [
    *EXTRAS["demo"],
    *EXTRAS["hub"],
    *EXTRAS["wiki"],
    *EXTRAS["tasks"],
    *EXTRAS["tfds"],
    *EXTRAS["serve"],
    *EXTRAS["serving"],
    *EXTRAS["litert"],
    *EXTRAS["onnx"],
    "basedpyright>=1.30,<2",  # pyright, as a wheel
    "hypothesis>=6.100,<7",
    "jax>=0.10,<0.11",  # the layers and models on another backend of Keras, on CPUs
    "mypy>=2,<3",
    "psutil>=6,<8",
    "pytest>=8,<10",
    "pytest-xdist>=3.6,<4",
    "ruff>=0.12,<0.18",
    "setuptools>=77,<82",  # builds the wheel that a test installs
]

setup(
    name="bert-tf",
    version=VERSION,
    description="BERT, complete, on TensorFlow 2 and Keras 3",
    long_description=LONG_DESCRIPTION,
    long_description_content_type="text/markdown",
    author="bert_tf contributors",
    project_urls={
        "Repository": REPOSITORY,
        "Documentation": f"{FILES}/docs/index.md",
        "Changelog": f"{FILES}/CHANGELOG.md",
        "Issues": f"{REPOSITORY}/issues",
    },
    keywords=["BERT", "TensorFlow", "Keras", "natural language processing", "transformer"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["bert_tf", "bert_tf.*", "data_gen", "data_gen.*"]),
    package_data={
        "bert_tf": [
            "py.typed",
            "*.pyi",
            "tokenization/*.npz",
            "training/*.html",
            "http/page.*",
            "serving/card*.md",
            "goldens/*",
        ],
        "data_gen": ["sample_text/*.txt", "sample_topics/*.csv"],
    },
    py_modules=[  # the original's commands; all others are verbs of bert-tf
        "create_pretraining_data",
        "extract_features",
        "run_classifier",
        "run_pretraining",
        "run_squad",
    ],
    install_requires=[
        # 2.20 is the last with a build for TPUs (requirements-tpu.txt). Each tensorflow-text names
        # its TensorFlow; 2.21.0 fails at import (undefined ICU symbol), 2.21.1 works.
        "tensorflow>=2.20,<2.22",
        "tensorflow-text>=2.20.1,!=2.21.0,<2.22",
        "keras>=3.15,<3.16",
        "absl-py>=2.1",
        "charset-normalizer>=3.4,<4",  # names encodings in errors; requests brings it, too
        "numpy>=1.26",
        "safetensors>=0.5,<1",  # the weights of Hugging Face's folders
        "tqdm>=4.64,<5",  # the bars on a terminal
    ],
    entry_points={"console_scripts": ["bert-tf = bert_tf.__main__:main"]},
    extras_require=EXTRAS,
)
