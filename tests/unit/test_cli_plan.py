"""`spark-rdp plan`: the figures, the shape of its answers, and one sentence for everything that cannot be planned."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from spark_rdp.cli import main
from spark_rdp.planning.plan import Plan

ASKED = ["plan", "--epsilon", "1", "--sensitivity", "1"]
USEFULNESS = [*ASKED, "--metric", "usefulness", "--gamma", "0.1"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def test_usefulness_is_best_served_by_the_staircase(capsys):
    found = answer(capsys, *USEFULNESS)
    assert found["mechanism"] == "staircase"
    assert round(found["metric_value"], 4) == 0.1466
    assert round(found["alternatives"]["laplace"], 4) == 0.0952
    assert 0.999 < found["verified_epsilon"] <= found["epsilon"] == 1
    asked, answered = (
        "epsilon delta metric",
        "mechanism parameters verified_epsilon metric_value certificate alternatives",
    )
    assert {*asked.split(), *answered.split(), "plan_id", "seconds"} <= set(found)
    assert {"bound", "relative_gap"} <= set(found["certificate"])


def test_json_is_a_plan_that_can_be_read_back(capsys):
    found = answer(capsys, *USEFULNESS)
    assert Plan.from_json(json.dumps(found)).plan_id == found["plan_id"]


def test_relative_entropy_takes_a_prior_from_a_file(capsys, tmp_path):
    file = tmp_path / "expected.csv"
    file.write_text("age,people\n20,100\n30,60\n40,0\n50,3\n", encoding="utf-8")
    asked = [*ASKED, "--granularity", "1", "--metric", "relative-entropy", "--prior", str(file)]
    first, second = answer(capsys, *asked), answer(capsys, *asked, "--order", "2")
    assert first["metric"]["relative_entropy"]["order"] == 1
    assert second["metric"]["relative_entropy"]["order"] == 2
    assert 0 < first["metric_value"] < second["metric_value"]


def test_a_delta_lets_gaussian_noise_in(capsys):
    asked = [*ASKED, "--delta", "1e-6", "--coordinates", "50"]
    found = answer(capsys, *asked)
    assert found["mechanism"] == "gaussian"
    assert found["delta"] == 1e-6
    assert "gaussian" not in answer(capsys, *ASKED)["alternatives"]


def test_counts_are_served_by_the_two_sided_geometric(capsys):
    found = answer(capsys, *ASKED, "--granularity", "1")
    assert found["mechanism"] == "laplace"
    assert found["granularity"] == 1
    assert found["integer_sensitivity"] == 1


def test_every_coordinate_gets_its_share(capsys):
    one = answer(capsys, *ASKED, "--metric", "l1", "--mechanism", "laplace")
    four = answer(capsys, *ASKED, "--metric", "l1", "--mechanism", "laplace", "--coordinates", "4")
    assert four["metric_value"] == pytest.approx(4 * one["metric_value"], rel=1e-6)


@pytest.mark.parametrize(
    ("metric", "target"), [(["l1"], 5.0), (["l2"], 0.3), (["lp", "--p", "3"], 40.0), (["mallows", "--p", "1"], 2.0)]
)
def test_target_error_is_met_by_the_smallest_epsilon(capsys, metric, target):
    found = answer(capsys, "plan", "--target-error", str(target), "--sensitivity", "1", "--metric", *metric)
    assert found["metric_value"] <= target
    less = found["epsilon"] * 0.989  # a step of three significant digits is at most one per cent
    assert (
        answer(capsys, "plan", "--epsilon", str(less), "--sensitivity", "1", "--metric", *metric)["metric_value"]
        > target
    )


def test_target_of_a_probability_is_a_floor(capsys):
    wanted = ["--sensitivity", "1", "--metric", "usefulness", "--gamma", "5", "--granularity", "1"]
    found = answer(capsys, "plan", "--target-error", "0.9", *wanted)
    assert found["metric_value"] >= 0.9
    less = str(found["epsilon"] * 0.989)
    assert answer(capsys, "plan", "--epsilon", less, *wanted)["metric_value"] < 0.9


def test_table_shows_rivals_and_one_sentence_of_why(capsys):
    assert main(USEFULNESS) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["staircase", "0.1466", "chosen"] in lines
    assert ["laplace", "0.0952", "35.1%", "worse"] in lines
    assert out.rstrip().splitlines()[-1].startswith("staircase is the best for this metric")


def test_neither_spark_nor_java_is_started():
    code = (
        "import sys; from spark_rdp.cli import main; code = main(sys.argv[1:]);"
        "import psutil; print([c.name() for c in psutil.Process().children(recursive=True)], file=sys.stderr);"
        "print('pyspark' in sys.modules, 'py4j' in sys.modules, file=sys.stderr); sys.exit(code)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *USEFULNESS, "--json"], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["mechanism"] == "staircase"
    assert ran.stderr.splitlines() == ["[]", "False False"]


BAD = [
    [],
    ["--epsilon", "1"],
    ["--sensitivity", "1"],
    ["--epsilon", "1", "--target-error", "1", "--sensitivity", "1"],
    *(
        ["--epsilon", value, "--sensitivity", "1"]
        for value in ("0", "-1", "nan", "inf", "-inf", "True", "None", "", "5e-324", "1e308", "1,5")
    ),
    *(["--epsilon", "1", "--sensitivity", value] for value in ("0", "-1", "nan", "inf", "5e-324", "1e308", "one")),
    *(["--target-error", value, "--sensitivity", "1"] for value in ("0", "-1", "nan", "inf", "1e-200", "1e308")),
    ["--target-error", "1", "--sensitivity", "1", "--metric", "usefulness", "--gamma", "1"],
    *([*ASKED[1:], "--coordinates", value] for value in ("0", "-1", "1.5", "nan", "99999999999")),
    *([*ASKED[1:], "--granularity", value] for value in ("0", "-1", "nan", "inf", "0.3", "1e-60", "5e-324")),
    *([*ASKED[1:], "--metric", "usefulness", "--gamma", value] for value in ("0", "-1", "nan", "inf", "x")),
    *([*ASKED[1:], "--metric", "lp", "--p", value] for value in ("0", "0.5", "nan", "inf", "17")),
    [*ASKED[1:], "--metric", "lp"],
    [*ASKED[1:], "--metric", "usefulness"],
    [*ASKED[1:], "--metric", "l2", "--gamma", "1"],
    [*ASKED[1:], "--metric", "relative-entropy"],
    [*ASKED[1:], "--metric", "relative-entropy", "--prior", "absent.csv"],
    [*ASKED[1:], "--metric", "l1", "--prior", "absent.csv"],
    *([*ASKED[1:], "--delta", value] for value in ("-1", "nan", "inf", "1", "5e-324", "x")),
    [*ASKED[1:], "--metric", "relative-entropy"],
    [*ASKED[1:], "--metric", "relative-entropy", "--prior", "/no/such/file"],
    [*ASKED[1:], "--metric", "l1", "--prior", "/no/such/file"],
    [*ASKED[1:], "--metric", "l1", "--order", "2"],
    *([*ASKED[1:], "--delta", value] for value in ("-1", "0.6", "nan", "1e-40")),
    [*ASKED[1:], "--mechanism", "gaussian"],
    [*ASKED[1:], "--mechanism", "r2dp-gaussian", "--delta", "1e-6", "--coordinates", "2"],
    [*ASKED[1:], "--metric", "unknown"],
    [*ASKED[1:], "--metric", "custom"],
    [*ASKED[1:], "--mechanism", "unknown"],
    [*ASKED[1:], "--mechanism", ""],
    [*ASKED[1:], "--unknown"],
    [*ASKED[1:], "stray"],
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_is_one_sentence(capsys, arguments):
    assert main(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert_one_sentence(captured.err)


@pytest.mark.parametrize(
    "arguments", [["unknown"], ["--unknown"], ["ledger"], ["ledger", "unknown"], ["schema", "unknown"], ["release"]]
)
def test_unknown_verbs_are_one_sentence(capsys, arguments):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert_one_sentence(captured.err)


def assert_one_sentence(text: str) -> None:
    assert text.startswith("spark-rdp: ")
    assert text.count("\n") == 1
    assert text.endswith((".\n", "?\n"))
    assert "Traceback" not in text


def test_verbose_adds_the_trace(capsys):
    assert main([*ASKED, "--metric", "unknown", "--verbose"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("spark-rdp: --metric must be")


def test_the_metrics_offered_are_those_there_are():
    from spark_rdp.cli.plan import METRICS
    from spark_rdp.metrics import PLAIN, WITH_ARGUMENT

    assert {name.replace("-", "_") for name in METRICS} == {*PLAIN, *WITH_ARGUMENT}


def test_relative_entropy_takes_its_prior_from_a_file(capsys, tmp_path):
    prior = tmp_path / "prior.csv"
    prior.write_text("weight\n50\n30\n20\n")
    found = answer(capsys, *ASKED, "--metric", "relative-entropy", "--prior", str(prior), "--order", "2")
    assert found["metric"]["relative_entropy"]["order"] == 2
    assert found["metric_value"] > 0
    assert main([*ASKED, "--metric", "relative-entropy", "--prior", str(prior)]) == 0
    assert "divergence" in capsys.readouterr().out


def test_an_unknown_mechanism_is_answered_with_those_there_are(capsys):
    from spark_rdp.planning.additive import names

    assert main([*ASKED, "--mechanism", "podium"]) == 2
    message = capsys.readouterr().err
    assert all(name in message for name in names())


@pytest.mark.parametrize(
    "arguments", [[], ["--help"], ["plan", "--help"], ["ledger", "--help"], ["release", "-h"], ["--version"]]
)
def test_help_and_version(capsys, arguments):
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out
    assert captured.err == ""
