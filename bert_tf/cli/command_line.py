"""What a command line is answered before TensorFlow loads: help, and wrong flags."""

import re
import shutil
import sys
import textwrap

from absl import flags

from bert_tf.cli.flags import FLAGS, MOST_USED
from bert_tf.errors import InputError

NAME_WIDTH = 32
REMOVED = {  # flags of before: what to do instead
    "clip_per_replica": "leave it out: the gradients of all devices are clipped together",
    "interactive": "leave it out; bert-tf serve answers what is typed, on a page",
    "legacy_shuffle": "leave it out: fine-tuning shuffles all examples",
    **dict.fromkeys(
        ("device_tflops", "device_gb_per_s", "link_gb_per_s", "price_per_hour", "efficiency"),
        "leave it out: bert-tf plan tells memory alone",
    ),
    "for": "in a clone of the repository: python benchmarks/compilers.py --for=DEVICES",
    **dict.fromkeys(("report_file", "nbest_file"), "run_squad.py --report writes the page"),
    "fits": "bert-tf plan --bert_config_file=FILE --device=16, say, for one model and GPU",
    "memory_gb": "--device takes the GB, too: --device=16",
    **dict.fromkeys(("num_classes", "reserved_gb"), "leave it out: it hardly changes the plan"),
    "head": "it is --task now",
    "end_when_hung": "leave it out: let a supervisor watch the log",
    "unchanged_share": "leave it out: the rest of --mask_share and --random_share",
    "output_format": "the ending of --output_file says it: .jsonl, .tfrecord or .npz",
    "tfds_data_dir": "set the environment variable TFDS_DATA_DIR",
    "version": "name the folder of the version: serving/topics/3",
    "min_frequency": "leave it out: two pieces that meet twice are merged",
    "num_choices": "leave it out: as the model was trained",
    "pad_vocab_to": "leave it out; --extra_tokens adds pieces",
    "end_learning_rate": "leave it out: the learning rate falls to 0",
    "num_cpu_devices": "leave it out: several devices need several GPUs",
    "picture": "it is --output_file now",
    "masked_lm_only": "write --task=fill_mask",
    "num_replicas": "--device takes the number: --device=8xh100",
    "label_separator": "leave it out: a comma, ; or | will do",
    "character_coverage": "leave it out: characters of 0.01 % of the text get no piece",
    "xnli_language": "the task's name has it: --task_name=xnli-de",
    "one_draw_per_word": "leave it out: each piece draws for itself, as in the original",
    "max_restarts": "leave it out: let a supervisor start all processes again",
}


def page(about: str) -> str:
    """What a command does, and its flags in groups, those used most on top."""
    width = min(100, max(60, shutil.get_terminal_size((100, 24)).columns))
    if sys.argv[0].startswith("bert-tf "):  # there need not be a script
        about = re.sub(r"^( *)python \w+\.py", rf"\1{sys.argv[0]}", about, flags=re.M)
    groups = {"Most used": MOST_USED, "Of this command": []}
    for name in FLAGS:
        title = getattr(FLAGS[name], "group", None)  # absl's own have none
        if title and name not in MOST_USED:
            groups.setdefault(title, []).append(name)
    parts = [about.strip()]
    for title, names in groups.items():
        if names:
            parts.append("\n".join([f"{title}:", *(entry(FLAGS[n], width) for n in names)]))
    return "\n\n".join([*parts, "Further flags, for logging and debugging: --helpfull lists them."])


def entry(flag: flags.Flag, width: int) -> str:
    """The lines of a flag: its name and default, and what it does; a long list below them."""
    default = None if re.search("Default:|If not given:", flag.help) else flag.default
    shown = "" if default is None else default
    shown = ",".join(map(str, shown)) if isinstance(shown, list) else shown
    name = f"--[no]{flag.name}" if flag.boolean else f"--{flag.name}={shown}"
    text = f"{flag.help} (default: yes)" if flag.boolean and default else flag.help
    for modes in filter(None, flag.acts_told):
        known = [f"--{mode}" for mode in modes if mode.partition("=")[0] in FLAGS]
        text += f" With {' or '.join(known)}."
    text = re.sub("^<(.*?)>:", lambda choices: f"{choices[1].replace('|', ' | ')}.", text)  # absl's
    first, *listed = text.splitlines()
    margin = " " * (NAME_WIDTH + 4)
    lines = textwrap.fill(first, width, initial_indent=margin, subsequent_indent=margin)
    fits = len(name) <= NAME_WIDTH
    lines = f"  {name:<{NAME_WIDTH}}  {lines.lstrip()}" if fits else f"  {name}\n{lines}"
    return "\n      ".join([lines, *listed])


# ---------------------------------------------------------------------------- what is wrong


def flag_error(error: flags.Error | UnicodeError) -> InputError:
    """The first thing that is wrong with a command line."""
    if isinstance(error, flags.CantOpenFlagFileError | UnicodeError):
        received = f"a --flagfile that cannot be read ({str(error).rpartition('flagfile: ')[2]})"
        return InputError(received, "a text file in UTF-8, a flag a line", "check the path")
    given, _, why = str(error).splitlines()[0].removeprefix("flag ").partition(": ")
    if isinstance(error, flags.UnrecognizedFlagError):
        likely = re.findall(r"\w+", why)  # absl's own guesses
        remedy = f"did you mean --{likely[0]}?" if likely else "correct it, or leave it out"
        remedy = REMOVED.get(error.flagname.removeprefix("no"), remedy)
        expected = f"the flags that {sys.argv[0]} --help lists"
        return InputError(f"--{error.flagname}, which is unknown", expected, remedy)
    if missing := re.findall("it is required: write --(.*)=", str(error)):
        words = " ".join(f"--{name}=VALUE" for name in missing)
        expected = "\n".join(f"--{name}: {FLAGS[name].help}" for name in missing)
        return InputError(f"no --{' and no --'.join(missing)}", expected, f"write {words}")
    name = given.removeprefix("--").partition("=")[0]
    kind = name in FLAGS and FLAGS[name].flag_type()
    if kind in ("int", "float"):
        why = FLAGS[name].parser.syntactic_help.replace(">= 5e-324", "above 0")
    expected = "true or false" if kind == "bool" else why.removeprefix("value should be ")
    remedy = f"correct it; {sys.argv[0]} --help explains the flags"
    return InputError(given, expected or "--flag=VALUE", remedy)
