"""The command under its old name; see data_gen/create_pretraining_data.py."""

from bert_tf import flags
from data_gen.create_pretraining_data import define_flags, main

if __name__ == "__main__":
    define_flags()
    flags.run(main)
