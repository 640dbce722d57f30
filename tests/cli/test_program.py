"""Help, version, wrong command lines, unknown settings, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dsrd import __version__
from support.program import STREAM, TRAINED, assert_options_are_short, done, dsrd, finish, refused, start

COMMANDS = (
    "demo",
    "models",
    "train",
    "evaluate",
    "calibration",
    "predict",
    "surprise",
    "update",
    "compare",
    "classify",
    "embed",
    "inspect",
    "data",
    "data list",
    "data describe",
    "data audit",
    "data convert",
    "data fetch",
    "data sample",
    "data synth",
    "bench",
    "bench speed",
)


def test_help_names_every_command_and_the_exit_codes():
    shown = done("--help").out
    for command in COMMANDS:
        if " " not in command:
            assert f"\n  {command} " in shown
    assert "0 done, 1 failed, 2 bad input, 130 interrupted" in shown
    assert "..." not in shown.split("Commands:")[1], "a summary is cut off"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_and_fits_a_terminal(command: str):
    shown = done(*command.split(), "--help").out
    assert f"\n    dsrd {command}" in shown
    assert all(len(line) <= 80 for line in shown.splitlines() if "    dsrd " not in line)
    assert_options_are_short(shown)


@pytest.mark.parametrize("option", ["train --seed", "train --protocol", "train --time", "evaluate --batch-size"])
def test_help_shows_defaults(option: str):
    command, name = option.split()
    help_text = done(command, "-h").out.split(f"\n  {name} ")[1].split("\n  -")[0]
    assert "[default:" in help_text


def test_version():
    assert done("--version").out == f"dsrd {__version__}\n"


def test_help_does_not_load_heavy_libraries():
    script = "import sys, dsrd.cli; print([name for name in ('torch', 'numba', 'pyarrow') if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", script], text=True).strip() == "[]"


@pytest.mark.parametrize("words", ["", "data", "bench"])
def test_no_command_prints_the_help(words: str):
    outcome = dsrd(*words.split())
    assert outcome.code == 2
    assert "Commands:" in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("trian", "no such command 'trian'"),
        ("train", "missing option '--dataset'"),
        ("train --dataset synth --modle tgn", "--model"),
        ("train --dataset synth --seed abc", "'--seed'"),
        ("data describe", "missing argument 'NAME'"),
        ("evaluate --batch-size many", "'--batch-size'"),
        ("predict", "missing"),
    ],
)
def test_a_wrong_command_line_gives_one_line_that_names_the_help(words: str, message: str):
    error = refused(*words.split())
    assert message in error
    assert "--help`" in error


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.epoch=1", "did you mean 'train.epochs'?"),
        ("epochs=1", "did you mean 'train.epochs'?"),
        ("lr=1", "did you mean 'train.lr'?"),
        ("trian.lr=1", "did you mean 'train.lr'?"),
        ("evaluate.negative=random", "did you mean 'evaluate.negatives'?"),
        ("batch_size=1", "did you mean 'evaluate.batch_size' or 'train.batch_size'?"),
        ("model.dropuot=0", "did you mean 'model.dropout'?"),
        ("dropout=0", "did you mean 'model.dropout'?"),
        ("model.epochs=1", "did you mean 'train.epochs'?"),
        ("data.sources=a", "did you mean 'data.source'?"),
        ("sed=1", "did you mean 'seed'?"),
        ("xyz=1", "valid: data.bipartite"),
        ("train.epochs", "expected key=value"),
        ("=3", "expected key=value"),
    ],
)
def test_an_unknown_setting_is_refused_with_a_suggestion(setting: str, message: str):
    error = refused("train", "--dataset", STREAM, "--model", TRAINED, "--set", setting)
    assert setting.partition("=")[0] in error
    assert message in error


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.epochs=-1", "train.epochs=-1: give 1 or more"),
        ("train.epochs=0", "train.epochs=0: give 1 or more"),
        ("train.epochs=1.5", "train.epochs=1.5: expected a whole number"),
        ("train.patience=0", "train.patience=0: give 1 or more"),
        ("train.batch_size=0", "train.batch_size=0: give 1 or more"),
        ("train.lr=abc", "train.lr=abc: expected a number"),
        ("train.lr=0", "train.lr=0.0: give a number above 0"),
        ("train.lr=nan", "train.lr=nan: give a number above 0"),
        ("train.weight_decay=-1", "train.weight_decay=-1.0: give 0 or more"),
        ("train.minutes=-1", "train.minutes=-1.0: give 0 or more"),
        ("train.device=tpu9", "train.device=tpu9: "),
        ("train.device=cuda:77", "train.device=cuda:77: "),
        ("evaluate.batch_size=0", "evaluate.batch_size=0: give 1 or more"),
        ("evaluate.candidates=-5", "evaluate.candidates=-5: give 0"),
        ("evaluate.negatives=histrical", "did you mean 'historical'?"),
        ("evaluate.negatives=random,random", "each once"),
        ("evaluate.negatives=", "name one kind or more"),
        ("evaluate.order=py39", "did you mean 'py3"),
        ("model.dim=-4", "model.dim=-4: give 1 to 65536"),
        ("model.neighbors=-1", "model.neighbors=-1: give 0 to 1000000"),
        ("model.dropout=nan", "model.dropout=nan: give 0 to below 1"),
        ("model.dropout=-0.5", "model.dropout=-0.5: give 0 to below 1"),
        ("train.keep=best", "unknown value of train.keep 'best'"),
        ("model.dim=many", "model.dim=many: expected a whole number"),
        ("model.dropout=2", "model.dropout=2.0: give 0 to below 1"),
        ("model.heads=0", "model.heads=0: give 1 to 1024"),
        ("model.last_message=newest", "unknown value of model.last_message 'newest'"),
        ("seed=-1", "seed=-1: give 0 to"),
        ("preset=publishd", "did you mean 'published'?"),
        ("data.bipartite=perhaps", "expected true or false"),
    ],
)
def test_an_invalid_value_of_a_setting_is_refused(setting: str, message: str):
    error = refused("train", "--dataset", STREAM, "--model", TRAINED, "--set", setting)
    assert message in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("train -d synth -m tng", "unknown model 'tng'; did you mean 'tgn'?"),
        ("train -d synth --protocol strikt", "unknown protocol 'strikt'; did you mean 'strict'?"),
        ("train -d synth --preset publisht", "unknown preset 'publisht'; did you mean 'published'?"),
        ("train -d synth -m dsrd --set preset=papr", "unknown preset 'papr'; did you mean 'paper'?"),
        ("train -d synth -m tgn --preset paper", "unknown preset 'paper'; (valid: default, published)"),
        (
            "train -d synth:events=500 -m dsrd --preset paper --set model.dim=9",
            "model.heads=4: give a divisor of model.dim=9",
        ),
        (
            "train -d synth:events=500 -m dsrd --preset paper --set model.neighbors=0",
            "model.neighbors=0: give 1 to 1000000",
        ),
        ("train -d ucii", "unknown data set 'ucii'; did you mean 'uci'?"),
        ("train -d synth:event=1000", "did you mean 'synth:events'?"),
        ("train -d synth:1000", "write for example synth:events=5000"),
        ("train -d synth:events=5", "synth.events=5: give 100 or more"),
        ("train -d synth --seed -1", "seed=-1: give 0 to 4294967295"),
        ("train -d synth --threads -1", "--threads -1: give 1 to 1024"),
        ("train -d synth --set train.lr=1 --set train.lr=2", "--set train.lr: given twice"),
        ("train -d no/such.csv", "no/such.csv: no such file"),
        ("train -d synth --format cvs", "unknown value of format 'cvs'; did you mean 'csv'?"),
        ("evaluate", "evaluate needs a run folder, or --model and --dataset"),
        ("evaluate --model edgebank", "evaluate needs a run folder, or --model and --dataset"),
        ("evaluate --model tgn --dataset synth:events=1000", "run `dsrd train --model tgn"),
        ("evaluate --model edgbank --dataset synth", "did you mean 'edgebank'?"),
        ("evaluate -m edgebank -d synth:events=500 --negatives randm", "did you mean 'random'?"),
        ("evaluate -m edgebank -d synth:events=500 --batch-size 0", "evaluate.batch_size=0: give 1 or more"),
        ("evaluate -m edgebank -d synth:events=500 --protocol dyglab", "did you mean 'dyglib'?"),
        ("evaluate no-run", "no-run: not a run folder"),
        ("evaluate no-run --head", "option '--head' requires an argument; see `dsrd"),
        ("predict no-run --pairs p.csv", "no-run: not a run folder"),
        ("data describe ucii", "did you mean 'uci'?"),
        ("data describe uci", "fetch it, or set DSRD_DATA to the folder that holds uci"),
        ("data audit synth:events=500 --order py36", "unknown order 'py36'; did you mean 'py3"),
        ("data convert synth:events=500 stream.xlsx", "stream.xlsx: cannot write .xlsx; use .csv"),
        ("data synth stream.csv --set event=500", "unknown setting 'event'; did you mean 'events'?"),
        ("data synth stream.csv --set events=-5", "synth.events=-5: give 100 or more"),
        ("data synth stream.json --set events=500", "stream.json: cannot write .json"),
        ("data fetch ucy", "unknown data set 'ucy'; did you mean 'uci'?"),
        ("data fetch ftp://example.org/a.csv --to here", "only http and https"),
        ("data fetch pubmed --to here", "no download address is known"),
        ("bench speed -d synth -m tng", "did you mean 'tgn'?"),
        ("bench speed -d synth --repeats 0", "--repeats 0: give 1 or more"),
        ("bench speed -d synth --batches -1", "--batches -1: give 0 or more"),
        ("demo --epochs 0", "train.epochs=0: give 1 or more"),
        ("demo --events 5", "synth.events=5: give 100 or more"),
    ],
)
def test_an_invalid_name_or_number_is_refused(words: str, message: str):
    assert message in refused(*words.split())


def test_debug_anywhere_on_the_line_shows_the_traceback():
    for words in ("--debug train -d no.csv", "train --debug -d no.csv", "train -d no.csv --debug"):
        outcome = dsrd(*words.split())
        assert outcome.code == 2
        assert "Traceback" in outcome.err
        assert "DsrdError: no.csv: no such file" in outcome.err
        assert outcome.err.splitlines()[-1].startswith("error: no.csv: no such file")


def test_exit_codes_of_the_program_itself():
    bad = finish(start("data", "describe", "no.csv"))
    assert bad.code == 2
    assert bad.err.startswith("error: no.csv: no such file")
    good = finish(start("models", "--json"))
    assert (good.code, good.err) == (0, "")
    assert len(good.out.splitlines()) == 1
    assert TRAINED in [model["name"] for model in json.loads(good.out)["models"]]


def test_closing_the_output_early_prints_no_error():
    process = start("models")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_an_output_that_cannot_show_a_name_is_one_line():
    code = """
import sys, dsrd.cli
program = sys.modules["dsrd.cli.main"]
program.typer.main.get_command = program.refuse_repeated = lambda *words: None
program.app = lambda *words, **more: print("zo\\u00eb")
program.main([])
"""
    outcome = finish(start(code=code, PYTHONIOENCODING="ascii"))
    assert (outcome.code, outcome.out) == (1, "")
    assert r"the output cannot show '\xeb' in ascii; set PYTHONIOENCODING=utf-8" in outcome.error
