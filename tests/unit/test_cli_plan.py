"""`spark-rdp plan`: the figures, the shape of its answers, and one sentence for everything that cannot be planned."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import pairwise

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


BOUNDED = ["plan", "--lower", "0", "--upper", "1"]
QUANTILE = ["plan", "--level", "0.5", "--candidates", "101"]


def test_a_bounded_value_is_planned_in_the_local_model(capsys):
    found = answer(capsys, *BOUNDED, "--epsilon", "1", "--metric", "average-variance")
    assert found["model"] == "local"
    assert found["mechanism"] == "fitted"
    assert found["metric_value"] == pytest.approx(0.97136, rel=1e-3)
    assert found["alternatives"]["laplace"] == pytest.approx(2, rel=1e-3)
    assert answer(capsys, *BOUNDED, "--epsilon", "1")["plan_id"] == found["plan_id"], "the usual metric"
    duchi = answer(capsys, *BOUNDED, "--epsilon", "20", "--metric", "worst-variance", "--mechanism", "duchi")
    assert duchi["metric_value"] == pytest.approx(0.25, rel=1e-6), "an answer of 0 or 1, at the centre"
    podium = answer(capsys, *BOUNDED, "--epsilon", "20", "--metric", "center-variance", "--mechanism", "podium")
    assert podium["metric_value"] == podium["alternatives"]["podium-center"] < podium["alternatives"]["podium-worst"]
    useful = answer(capsys, *BOUNDED, "--epsilon", "1", "--metric", "usefulness", "--gamma", "0.1")
    assert round(useful["metric_value"], 4) == 0.1466


@pytest.mark.parametrize("text", ["9\n1\n", "start,weight\n0,9\n5,1\n"])
def test_a_prior_of_a_bounded_value_comes_from_a_file(capsys, tmp_path, text):
    file = tmp_path / "prior.csv"
    file.write_text(text)
    asked = ["plan", "--lower", "0", "--upper", "10", "--epsilon", "20", "--mechanism", "podium"]
    found = answer(capsys, *asked, "--metric", "prior-variance", "--prior", str(file))
    assert found["metric"] == {"prior-variance": {"edges": [0, 5, 10], "weights": [9, 1]}}
    file.write_text("0,9\n11,1\n")
    assert main([*asked, "--metric", "prior-variance", "--prior", str(file)]) == 2
    assert capsys.readouterr().err.startswith("spark-rdp: prior must ")


def test_any_second_fold_serves_a_bounded_value(capsys):
    found = answer(capsys, *BOUNDED, "--epsilon", "12", "--mechanism", "r2dp-gamma")
    assert found["mechanism"] == "r2dp-gamma"
    assert 11.99 < found["verified_epsilon"] <= 12
    assert found["alternatives"]["r2dp"] <= found["metric_value"] < found["alternatives"]["laplace"]


def test_a_quantile_is_selected_by_permute_and_flip(capsys):
    found = answer(capsys, *QUANTILE, "--epsilon", "1")
    assert (found["model"], found["mechanism"]) == ("selection", "permute-and-flip")
    assert found["verified_epsilon"] == 1
    # Of the 1/2 for the value: a score below the best one by t is selected with probability 101 e^(-t/4) at most.
    assert found["metric_value"] == pytest.approx(2 * math.log(101 / 0.05), rel=1e-9)
    asked = [*QUANTILE, "--epsilon", "1", "--max-groups", "3", "--max-per-group", "2", "--mechanism", "exponential"]
    more = answer(capsys, *asked)
    assert more["mechanism"] == "exponential"
    assert more["metric_value"] == pytest.approx(6 * found["metric_value"], rel=1e-9)
    target = answer(capsys, *QUANTILE, "--target-error", "5")
    assert (
        target["metric_value"]
        <= 5
        < answer(capsys, *QUANTILE, "--epsilon", str(0.989 * target["epsilon"]))["metric_value"]
    )


def test_an_l1_norm_is_for_laplace_noise(capsys):
    """Mathematics, section 1.2."""
    asked = ["plan", "--epsilon", "1", "--sensitivity", "2", "--metric", "l1", "--granularity", "1", "--norm", "l1"]
    found = answer(capsys, *asked)
    assert found["mechanism"] == "laplace"
    assert found["facts"] == {"l1_norm": 2}
    profile = answer(capsys, *asked[:-2], "--coordinates", "2", "--mechanism", "laplace")
    assert found["metric_value"] < 0.6 * profile["metric_value"], "a profile of (2, 2) costs twice as much"
    for name in ("staircase", "r2dp", "r2dp-ensemble"):
        assert main([*asked, "--mechanism", name]) == 2
        assert "spread over coordinates" in capsys.readouterr().err
    assert main(asked) == 0
    out = capsys.readouterr().out
    assert "a vector that changes by 2 in the L1 norm" in out
    assert "laplace is the only noise that an L1 norm is enough for" in out


def test_target_error_of_a_bounded_value(capsys):
    asked = [*BOUNDED, "--mechanism", "podium", "--metric"]
    found = answer(capsys, *asked, "average-variance", "--target-error", "1e-8")
    less = answer(capsys, *asked, "average-variance", "--epsilon", str(found["epsilon"] * 0.989))
    assert found["metric_value"] <= 1e-8 < less["metric_value"]
    found = answer(capsys, *asked, "usefulness", "--gamma", "0.1", "--target-error", "0.7")
    less = answer(capsys, *asked, "usefulness", "--gamma", "0.1", "--epsilon", str(found["epsilon"] * 0.989))
    assert found["metric_value"] >= 0.7 > less["metric_value"]


def test_a_budget_sweep_is_a_list_of_plans(capsys):
    found = answer(capsys, "plan", "--budget-sweep", "--sensitivity", "1", "--metric", "l1")
    epsilons = [plan["epsilon"] for plan in found]
    assert epsilons == sorted(epsilons)
    assert (epsilons[0], epsilons[-1], len(epsilons)) == (0.1, 10, 13)
    values = [plan["metric_value"] for plan in found]
    assert all(left > right for left, right in pairwise(values))
    one = answer(capsys, *ASKED, "--metric", "l1")
    assert found[epsilons.index(1)]["plan_id"] == one["plan_id"]


def test_a_budget_sweep_is_shown_and_drawn(capsys, tmp_path):
    asked = ["plan", "--budget-sweep", "--sensitivity", "1", "--metric", "usefulness", "--gamma", "0.1"]
    for name, start in (("sweep.svg", b"<?xml"), ("sweep.PNG", b"\x89PNG")):
        picture = tmp_path / name
        assert main([*asked, "--out", str(picture)]) == 0
        assert picture.read_bytes().startswith(start)
        out = capsys.readouterr().out
        rows = [line.split() for line in out.splitlines()]
        assert ["1", "staircase", "0.1466", "laplace:", "35.1%", "worse"] in rows
        assert sum(len(row) > 1 and row[1] in ("laplace", "staircase") for row in rows) == 13
        assert out.endswith(f"The picture is {picture}.\n")
    text = (tmp_path / "sweep.svg").read_text()
    for word in ("epsilon", "P(|error| ≤ 0.1)", "staircase (chosen)", "laplace", "r2dp"):
        assert word in text


def test_a_sweep_leaves_out_what_cannot_be_planned(capsys):
    asked = ["plan", "--sensitivity", "1", "--coordinates", "2000000000", "--budget-sweep"]
    epsilons = [plan["epsilon"] for plan in answer(capsys, *asked)]
    assert (epsilons[0], epsilons[-1]) == (0.2, 10), "below, a coordinate would get less than a sampler's precision"
    found = answer(capsys, *BOUNDED, "--budget-sweep", "--metric", "usefulness", "--gamma", "0.2")
    assert len(found) == 13
    assert {plan["mechanism"] for plan in found} >= {"staircase", "podium"}
    assert main(["plan", "--budget-sweep", "--sensitivity", "1", "--mechanism", "gaussian"]) == 2
    assert "delta must be above 0" in capsys.readouterr().err


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


LOCAL_BAD = [
    *(["--metric", "l2"], ["--metric", "prior-variance"], ["--metric", "prior-variance", "--prior", "absent.csv"]),
    *(["--gamma", "1"], ["--metric", "usefulness"], ["--coordinates", "2"], ["--granularity", "1"]),
    *(["--delta", "1e-6"], ["--mechanism", "gaussian"], ["--level", "0.5"], ["--prior", "absent.csv"]),
]
QUANTILE_BAD = [
    *(["--level", "0.5"], ["--candidates", "9"], ["--level", "0", "--candidates", "9"]),
    *(["--level", "0.5", "--candidates", each] for each in ("1", "0", "-3", "x", "99999999")),
    *([*QUANTILE[1:], *more] for more in (["--metric", "l2"], ["--sensitivity", "1"], ["--mechanism", "laplace"])),
    *([*QUANTILE[1:], "--max-groups", "0"], [*QUANTILE[1:], "--max-per-group", "1.5"]),
]
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
    [*ASKED[1:], "--lower", "0", "--upper", "1"],
    [*ASKED[1:], "--level", "0.5", "--candidates", "9"],
    [*ASKED[1:], "--max-groups", "2"],
    [*ASKED[1:], "--limit"],
    [*ASKED[1:], "--norm", "l2"],
    [*ASKED[1:], "--norm", "l1", "--coordinates", "2"],
    [*ASKED[1:], "--metric", "average-variance"],
    [*ASKED[1:], "--budget-sweep"],
    [*ASKED[1:], "--out", "picture.png"],
    ["--budget-sweep", "--sensitivity", "1", "--out", "picture.jpg"],
    ["--budget-sweep", "--sensitivity", "1", "--out", "/no/such/folder/picture.png"],
    ["--budget-sweep", "--sensitivity", "0"],
    ["--budget-sweep", "--target-error", "1", "--sensitivity", "1"],
    *(["--epsilon", "1", "--lower", *bounds] for bounds in (["0"], ["0", "--upper", "0"], ["1", "--upper", "nan"])),
    *([*BOUNDED[1:], "--epsilon", "1", *more] for more in LOCAL_BAD),
    *(["--epsilon", "1", *more] for more in QUANTILE_BAD),
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
    from spark_rdp.cli.plan_central import CENTRAL
    from spark_rdp.metrics import PLAIN, WITH_ARGUMENT

    assert {name.replace("-", "_") for name in CENTRAL.metrics} == {*PLAIN, *WITH_ARGUMENT}


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
