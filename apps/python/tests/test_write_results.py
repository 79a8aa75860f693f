"""Result folders written from Python: read back whole, and taken by the tool."""

import datetime
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from fp8lab import results
from fp8lab.results import Column, Curve, Plot, Table

COLUMNS = (
    Column("step", "1", "updates so far"),
    Column("error", "%", "of a sum, with a comma"),
    Column("right", "", "whether it was"),
    Column("name", "", 'text with "quotes"'),
)


def table(name="sums"):
    data = {
        "step": np.array([0, 1, 2**53 + 1]),
        "error": np.array([0.1, np.nan, 1.0]),
        "right": np.array([True, False, True]),
        "name": np.array(["a,b", 'c"d', "e"]),
    }
    return Table(name, "Sums", COLUMNS, data)


def write(folder, tables=None, **how):
    how = {"experiment": "mine", "question": "Does it?"} | how
    return results.write(folder, [table()] if tables is None else tables, **how)


def test_all_kinds_of_columns_come_back(tmp_path):
    parameters = {"steps": 3, "rate": 0.5, "te-current": True, "of": 'a"b'}
    path = write(tmp_path, seed=3, parameters=parameters, findings=["One."])
    found = results.read(path)
    for column in COLUMNS:
        got, expected = found["sums"][column.name], table()[column.name]
        assert np.array_equal(got, expected, equal_nan=column.name == "error"), column.name
    assert found["sums"].columns == COLUMNS
    description = found.description
    assert description["parameters"] == parameters
    assert (description["seed"], description["findings"], description["quick"]) == (3, ["One."], False)


def test_texts_that_a_spreadsheet_would_run_are_read_back(tmp_path):
    texts = np.array(["=1+1", "-x", "+1", "-1.5", "@a", "'=1", "'x", "-", "", "\tx", "-inf", "a,'b"])
    columns = [Column("name", "", "a text"), Column("i", "1", "its place")]
    path = write(tmp_path, [Table("sums", "Sums", columns, {"name": texts, "i": np.arange(len(texts))})])
    lines = (tmp_path / "mine" / "sums.csv").read_text().splitlines()
    assert lines[1:4] == ["'=1+1,0", "'-x,1", "+1,2"]
    np.testing.assert_array_equal(results.read(path)["sums"]["name"], texts)


def test_a_second_run_removes_what_it_does_not_write(tmp_path):
    write(tmp_path, [table(), table("more")])
    path = write(tmp_path)
    assert not (tmp_path / "mine" / "more.csv").exists()
    assert sorted(results.read(path)) == ["sums"]


def test_plots_and_the_tool(tmp_path):
    curves = [Curve("up", [0, 1, 2], [0.5, float("nan"), 2.0])]
    path = write(tmp_path, plots=[Plot("rise", "It rises", "step", "value (1)", curves)])
    description = json.loads((tmp_path / "mine" / "result.json").read_text())
    assert [(plot["name"], plot["title"]) for plot in description["plots"]] == [("rise", "It rises")]
    assert "rise.json" in description["plots"][0]["files"]
    tool = os.environ.get("FP8LAB_TOOL")
    if tool:
        subprocess.run([tool, "report", path, "-o", tmp_path / "r.html"], check=True, capture_output=True)
        assert "Does it?" in (tmp_path / "r.html").read_text()


def test_errors_name_the_argument(tmp_path):
    bad = Table("sums", "Sums", COLUMNS[:2], {"step": np.arange(2), "error": np.arange(3.0)})
    with pytest.raises(ValueError, match="sums: data: expected columns of one length, got"):
        write(tmp_path, [bad])
    lost = Table("sums", "Sums", COLUMNS[:2], {"step": np.arange(2)})
    with pytest.raises(ValueError, match="sums: data: expected the columns step, error, got step"):
        write(tmp_path, [lost])
    odd = Table("sums", "Sums", COLUMNS[:1], {"step": np.array([1j])})
    with pytest.raises(ValueError, match="sums: data: step: expected columns of booleans, numbers or text, got complex128"):
        write(tmp_path, [odd])
    with pytest.raises(ValueError, match="parameters: rate: expected a bool, a number or text, got None"):
        write(tmp_path, parameters={"rate": None})
    with pytest.raises(ValueError, match="plot rise: expected as many y as x, got 1"):
        write(tmp_path, plots=[Plot("rise", "", "", "", [Curve("up", [0, 1], [0])])])
    with pytest.raises(ValueError, match="seed: expected a whole number, got 0.5"):
        write(tmp_path, seed=0.5)
    assert not list(tmp_path.iterdir())


def test_parameters_of_every_kind_come_back(tmp_path):
    odd = {
        "emoji 🎉": "a 🎉 b", "controls": "\t\n\r\x00\x1f\x7f\x85\u2028", "quotes": "\"\\'", "empty": "", "": "no name",
        "large": 2**63 - 1, "small": -(2**63), "tiny": 5e-324, "third": 1 / 3, "yes": True, "numpy": np.float64(0.1),
    }  # fmt: skip
    assert results.read(write(tmp_path, parameters=odd)).description["parameters"] == odd
    infinite = {"up": float("inf"), "down": -float("inf"), "not": float("nan")}
    found = results.read(write(tmp_path, parameters=infinite)).description["parameters"]
    assert found == {"up": "inf", "down": "-inf", "not": "nan"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n": 2**63}, "^parameters: n: expected an integer of 64 bits, got 9223372036854775808$"),
        ({"half": "\ud83d"}, r"^parameters: half: expected text without halves of surrogate pairs, got '\\ud83d'$"),
        ({"quick": 1}, "^parameters: expected names other than question, quick, range, mpi, got 'quick'$"),
        ({"question": "why"}, "^parameters: expected names other than"),
        ({3: 1}, "^parameters: expected names that are text, got 3$"),
        ({"list": [1]}, r"^parameters: list: expected a bool, a number or text, got \[1\]$"),
    ],
)
def test_parameters_that_cannot_be_kept_are_refused_by_name(tmp_path, parameters, message):
    with pytest.raises(ValueError, match=message):
        write(tmp_path, parameters=parameters)
    assert not list(tmp_path.iterdir())


def test_columns_that_cannot_be_kept_are_refused_by_name(tmp_path):
    for values, message in (
        (np.array([3, 2**63 + 9, 2**63], np.uint64), "^t: data: x: expected integers of at most 2.63 - 1, got 9223372036854775817$"),
        (np.array([2**63], np.uint64), "^t: data: x: expected integers of at most 2.63 - 1, got 9223372036854775808$"),
        (np.ma.masked_array([1, 2], [False, True]), "^t: data: x: expected an array without a mask"),
        (np.array([1, 2], np.longdouble) / 3, "^t: data: x: expected numbers that binary64 has, got"),
        (np.array(["a"], object), "^t: data: x: expected columns of booleans, numbers or text, got object$"),
    ):
        one = Table("t", "T", (Column("x", "1", ""),), {"x": values})
        with pytest.raises(ValueError, match=message):
            write(tmp_path, [one])
    wide = Table("t", "T", (Column("x", "1", ""),), {"x": np.array([np.nan, -np.inf, 0.5, -0.0], np.longdouble)})
    kept = results.read(write(tmp_path, [wide]))["t"]["x"]
    assert kept.tobytes() == np.array([np.nan, -np.inf, 0.5, -0.0]).tobytes()
    largest = Table("t", "T", (Column("x", "1", ""),), {"x": np.array([2**63 - 1], np.uint64)})
    assert results.read(write(tmp_path, [largest]))["t"]["x"].tolist() == [2**63 - 1]


@pytest.mark.parametrize("named", [None, "/no/such/python", ""])
def test_the_python_that_draws_is_the_one_that_was_named(tmp_path, monkeypatch, named):
    if named is None:
        monkeypatch.delenv("FP8LAB_PYTHON", raising=False)
    else:
        monkeypatch.setenv("FP8LAB_PYTHON", named)
    write(tmp_path)
    assert os.environ["FP8LAB_PYTHON"] == (sys.executable if named is None else named)
    monkeypatch.delenv("FP8LAB_PYTHON")


def test_data_has_the_columns_that_are_described_and_no_others(tmp_path):
    columns = (Column("x", "1", ""), Column("y", "1", ""))
    x, y = np.arange(2), np.arange(2.0)
    for data, got in (({"x": x, "y": y, "z": y}, "x, y, z"), ({"x": x}, "x"), ({}, ""), ({"x": x, "Y": y}, "x, Y")):
        with pytest.raises(ValueError, match=f"^t: data: expected the columns x, y, got {got}$"):
            write(tmp_path, [Table("t", "T", columns, data)])
    turned = Table("t", "T", columns, {"y": y, "x": x})
    found = results.read(write(tmp_path, [turned]))["t"]
    assert found["x"].tolist() == [0, 1] and [one.name for one in found.columns] == ["x", "y"]


def test_columns_keep_their_types(tmp_path):
    found = results.read(write(tmp_path))["sums"]
    assert [found[name].dtype.kind for name in ("step", "error", "right", "name")] == ["i", "f", "b", "U"]
    assert (tmp_path / "mine" / "sums.csv").read_text().splitlines()[1].split(",")[2] == "true"


def test_the_time_of_a_run_is_when_it_began(tmp_path):
    before = time.time()
    found = results.read(write(tmp_path, duration_seconds=3600.5)).description
    after = time.time()
    started = datetime.datetime.fromisoformat(found["started"]).timestamp()
    assert before - 3600.5 - 1 <= started <= after - 3600.5 + 1
    assert found["duration_seconds"] == 3600.5 and found["threads"] == 1
    assert results.read(write(tmp_path, threads=7, command="make me")).description["threads"] == 7
    assert results.read(write(tmp_path, command="make me")).description["command"] == "make me"
