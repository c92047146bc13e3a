"""A model that is registered at run time is one of the command line's, with its own options."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import fastbayes as fb
from fastbayes.cli import main
from fastbayes.models.estimator.parameters import parameter
from fastbayes.models.registry import MODELS, Candidate, register


class SharpBayes(fb.NaiveBayes):
    """Naive Bayes whose parameters say more than its name does."""

    mood: str = parameter(
        "How it goes about its work. It changes nothing.", default="calm", choices=("calm", "wild")
    )
    strength: float = parameter("How strong it is.", default=2.5)
    loud: bool = parameter("Whether it says so.", default=False)
    polite: bool = parameter("Whether it asks first.", default=True)


@pytest.fixture
def registered():
    register(SharpBayes, name="sharp-bayes", candidates=(Candidate(),))
    yield
    del MODELS["SharpBayes"]


@pytest.fixture
def data(tmp_path):
    random = np.random.default_rng(0)
    table = {"a": random.choice(list("xyz"), 90), "y": random.choice(list("pq"), 90)}
    pq.write_table(pa.table(table), tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def run(*args, code=0):
    done = CliRunner().invoke(main, [str(arg) for arg in args], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


@pytest.mark.usefixtures("registered")
def test_fit_predict_evaluate_inspect_compare(data):
    made, out = data.with_name("m.fb"), data.with_name("p.parquet")
    own = ("--mood", "wild", "--strength", "3.5", "--loud", "--alpha", "2")
    run("fit", data, "--target", "y", "--model", "sharp-bayes", *own, "-o", made)
    model = fb.load(made)
    assert isinstance(model, SharpBayes)
    assert (model.mood, model.strength, model.loud, model.alpha) == ("wild", 3.5, True, 2.0)
    run("predict", made, data, "-o", out)
    assert pq.read_table(out).num_rows == 90
    assert json.loads(run("evaluate", made, data, "--json").stdout)["n"] == 90
    said = run("inspect", made).stdout
    assert "SharpBayes(mood='wild', strength=3.5, loud=True, alpha=2.0)" in said
    said = run("compare", data, "--target", "y", "--models", "sharp-bayes,tan", "--json").stdout
    assert "sharp-bayes" in [entry["model"] for entry in json.loads(said)["models"]]


@pytest.mark.usefixtures("registered")
def test_help_and_errors(data):
    told = " ".join(run("fit", "--help-all").stdout.split())
    assert "--mood [calm|wild] How it goes about its work. (sharp-bayes)" in told
    assert "--mood" in run("fit", "--model", "sharp-bayes", "--help").stdout
    assert "--no-polite Turn off: Whether it asks first. (sharp-bayes)" in told
    # Lines of a help text break at hyphens, too.
    assert "sharp-bayes" in "".join(run("compare", "--help").stdout.split())
    with_tan = ("fit", data, "--target", "y", "--model", "tan", "-o", data.with_name("t.fb"))
    said = run(*with_tan, "--mood", "wild", code=2).stderr
    assert "--mood does not go with --model tan, but with sharp-bayes" in said


def test_others_do_not_see_it():
    assert "--mood" not in run("fit", "--help-all").stdout
