"""What --help prints: the flags in groups, those that a command is seldom without on top."""

import os
import re
import shutil
import sys
import textwrap

from absl import app, flags

FLAGS = flags.FLAGS
# By verbs and scripts. What is not listed here stands in its group.
ESSENTIAL = {
    "data beam-data create_pretraining_data.py": "input_file output_file vocab_file do_lower_case"
    " max_seq_length max_predictions_per_seq dupe_factor num_workers",
    "vocab": "input_file output_file vocab_size do_lower_case num_workers",
    "pretrain run_pretraining.py": "input_file bert_config_file vocab_file output_dir do_train"
    " do_eval eval_input_file learning_rate train_batch_size num_train_steps num_warmup_steps"
    " max_seq_length max_predictions_per_seq",
    "classify run_classifier.py": "task_name data_dir init_checkpoint output_dir do_train do_eval"
    " do_predict learning_rate train_batch_size num_train_epochs max_seq_length",
    "squad run_squad.py": "train_file predict_file init_checkpoint output_dir do_train do_predict"
    " do_eval version_2_with_negative learning_rate train_batch_size num_train_epochs"
    " max_seq_length",
    "features extract_features.py": "input_file output_file init_checkpoint layers pooling"
    " output_format max_seq_length batch_size",
    "fill-mask": "init_checkpoint top_k",
    "predict": "model input_file output_file batch_size",
    "export": "init_checkpoint export_dir format task labels max_seq_length",
    "convert": "from to to_format",
    "plan": "bert_config_file device train_batch_size max_seq_length num_train_steps precision"
    " fits",
}
NAME_WIDTH = 32
WIDTHS = (60, 100)  # of a page


class Help(app.HelpFlag):
    """--help: prints the page and ends the process."""

    def parse(self, arg: str) -> None:
        """Called where the flag is found."""
        if self._parse(arg):
            print(page(), flush=True)
            sys.exit(0)


class HelpShort(Help):
    """--helpshort, the same."""

    NAME, SHORT_NAME = "helpshort", None


def define_help_flags() -> None:
    """Defines absl's flags for help, of which --help prints `page`."""
    app.define_help_flags()
    for flag in (Help(), HelpShort()):
        flag.allow_override = True  # absl has its own
        FLAGS[flag.name] = flag


def page() -> str:
    """The command's documentation, and all flags that are its own."""
    least, most = WIDTHS
    width = min(most, max(least, shutil.get_terminal_size((most, 24)).columns))
    about = (sys.modules["__main__"].__doc__ or "").strip()
    if sys.argv[0].startswith("bert-tf "):  # there need not be a script
        about = re.sub(r"^( *)python \w+\.py", rf"\1{sys.argv[0]}", about, flags=re.M)
    parts = [about]
    for title, names in grouped(own_flags()).items():
        lines = [line for name in names for line in entry(FLAGS[name], width)]
        parts.append("\n".join([f"{title}:", *lines]))
    parts.append("Further flags, for logging and debugging: --helpfull lists them.")
    return "\n\n".join(parts)


def own_flags() -> list[str]:
    """The names of the flags that our modules define, in that order."""
    modules = FLAGS.flags_by_module_dict().items()
    ours = [defined for name, defined in modules if name == sys.argv[0] or "bert_tf." in name]
    names = dict.fromkeys(flag.name for defined in ours for flag in defined)
    return [name for name in names if name not in ("help", "helpshort")]


def grouped(names: list[str]) -> dict[str, list[str]]:
    """The names under the titles of their groups (`flags.group`), those used most on top."""
    command = os.path.basename(sys.argv[0]).removeprefix("bert-tf ")
    known = [flags.split() for commands, flags in ESSENTIAL.items() if command in commands.split()]
    most_used = known[0] if known else []
    found = {"Most used": most_used, "Of this command": []}
    for name in names:
        if name not in most_used:
            found.setdefault(getattr(FLAGS[name], "group", "Of this command"), []).append(name)
    return {title: members for title, members in found.items() if members}


def entry(flag: flags.Flag, width: int) -> list[str]:
    """The lines of a flag: its name and default, and what it does; a long list below them."""
    default = None if re.search("Default:|If not given:", flag.help) else flag.default
    if flag.boolean:
        name, text = f"--[no]{flag.name}", flag.help + " (default: yes)" * bool(default)
    else:
        shown = ",".join(default) if isinstance(default, list) else default
        name, text = f"--{flag.name}={'' if shown is None else shown}", flag.help
    first, *listed = re.sub("^<(.*?)>:", _spaced, text).splitlines()
    lines = textwrap.wrap(first, width - NAME_WIDTH - 4)
    if len(name) > NAME_WIDTH:
        lines.insert(0, "")
    names = [name, *[""] * (len(lines) - 1)]
    pairs = zip(names, lines, strict=True)
    lines = [f"  {name:<{NAME_WIDTH}}  {line}".rstrip() for name, line in pairs]
    return lines + [f"      {line}" for line in listed]


def _spaced(choices: re.Match) -> str:
    """absl's <a|b> before the help of a flag, so that it can be wrapped."""
    return f"{choices[1].replace('|', ' | ')}."
