"""The commands: flags, messages, exit codes, and one module for each verb of `bert-tf`."""
