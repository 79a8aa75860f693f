"""Result folders and loggers: the figures of `record` and `compare`, where others read them."""

import copy
import dataclasses
import os
import subprocess
from collections import OrderedDict

import numpy as np
import pytest
import torch
from conftest import log_normal
from torch import nn

import fp8lab.results
import fp8lab.torch


def mlp(recipe=None):
    torch.manual_seed(2)
    layers = {"up": nn.Linear(64, 32), "tanh": nn.Tanh(), "down": nn.Linear(32, 16)}
    model = nn.Sequential(OrderedDict(layers))
    return model if recipe is None else fp8lab.torch.convert(model, recipe, rule="all")


def recorded(model):
    with fp8lab.torch.record(model) as recording:
        model(log_normal(32, 64)).sum().backward()
    return recording


def test_statistics_come_back_from_their_folder(tmp_path):
    statistics = recorded(mlp("te-current")).statistics()
    path = fp8lab.torch.write_statistics(statistics, tmp_path, "mine")
    assert path == str(tmp_path / "mine")
    results = fp8lab.results.read(path)
    operands, products = results["operands"], results["products"]
    assert len(operands) == 6 and len(products) == 2
    for name, one in statistics.items():
        for role in ("activation", "weight", "gradient"):
            row = operands.where(layer=name, operand=role)
            for field, value in dataclasses.asdict(getattr(one, role)).items():
                assert row[field][0] == value, (name, role, field)
        row = products.where(layer=name)
        assert row["accumulator_error"][0] == one.accumulator_error
        assert row["output_sqnr_db"][0] == one.output_sqnr_db
    worst = int(np.argmax(products["accumulator_error"]))
    assert str(products["layer"][worst]) in results.description["findings"][2]
    worst = int(np.argmax(operands["relative_l2"]))
    assert f"{operands['operand'][worst]} of {operands['layer'][worst]}," in results.description["findings"][1]
    units = {column.name: column.unit for column in operands.columns}
    assert units["sqnr_db"] == "dB" and units["underflow_percent"] == "%" and units["amax"] == "1"
    assert not any("" == column.description for column in operands.columns)


def test_comparisons_come_back_from_their_folder(tmp_path):
    plain = mlp()
    fp8 = fp8lab.torch.convert(copy.deepcopy(plain), "te-current", rule="all")
    found = fp8lab.torch.compare(plain, fp8, log_normal(8, 64), loss=lambda y: y.square().mean())
    results = fp8lab.results.read(fp8lab.torch.write_comparison(found, tmp_path))
    assert [str(name) for name in results["layers"]["layer"]] == [one.name for one in found.layers]
    assert list(results["layers"]["loss_change"]) == [one.loss_change for one in found.layers]
    assert results.description["parameters"] == {"loss_a": found.loss_a, "loss_b": found.loss_b}


def test_the_worst_output_comes_first(tmp_path):
    """A weight that underflows without a scale: gradients, whose casts are worse than others, do not tell."""
    model = mlp("te-current")
    fp8lab.torch.convert(model, "naive", filter=lambda name, module: name == "down", rule="all")
    with torch.no_grad():
        model.down.weight.mul_(1e-4)
    statistics = recorded(model).statistics()
    results = fp8lab.results.read(fp8lab.torch.write_statistics(statistics, tmp_path))
    sqnr = list(results["products"]["output_sqnr_db"])
    assert str(results["products"]["layer"][0]) == "down" and sqnr == sorted(sqnr) and abs(sqnr[0]) < 1
    assert results.description["findings"][0].startswith("The output farthest from that of uncast operands: down, ")


def test_an_output_of_nan_is_the_worst(tmp_path):
    decibels = {"fair": 30.0, "lost": float("nan"), "poor": 3.0}
    statistics = {name: fp8lab.torch.LayerStatistics(None, None, None, db, 0.0) for name, db in decibels.items()}
    results = fp8lab.results.read(fp8lab.torch.write_statistics(statistics, tmp_path))
    assert [str(name) for name in results["products"]["layer"]] == ["lost", "poor", "fair"]
    assert results.description["findings"][0].startswith("The output farthest from that of uncast operands: lost, nan dB ")


def test_the_tool_makes_a_report_of_them(tmp_path):
    tool = os.environ.get("FP8LAB_TOOL")
    if not tool:
        pytest.skip("FP8LAB_TOOL names no tool")
    fp8lab.torch.write_statistics(recorded(mlp("deepgemm")).statistics(), tmp_path)
    page = tmp_path / "report.html"
    subprocess.run([tool, "report", tmp_path, "-o", page], check=True, capture_output=True)
    text = page.read_text()
    assert "What do the casts and sums of each layer take?" in text and "accumulator_error" in text


class Kept:
    def __init__(self):
        self.seen = []

    def add_scalar(self, name, value, step):
        self.seen.append((name, value, step))


def test_loggers():
    recording, kept = recorded(mlp("te-current")), Kept()
    fp8lab.torch.log(recording, kept, 7, prefix="p")
    assert {(f"p/{name}", value, 7) for name, value in recording.scalars().items()} == set(kept.seen)

    class Wandb:
        def log(self, scalars, step):
            self.seen = scalars, step

    other = Wandb()
    fp8lab.torch.log(recording, other, 3)
    assert other.seen == ({f"fp8/{name}": value for name, value in recording.scalars().items()}, 3)
    with pytest.raises(TypeError, match="writer: expected add_scalar or log, got object"):
        fp8lab.torch.log(recording, object(), 0)


def test_watching_records_some_steps_and_leaves_no_hook():
    model, kept = mlp("te-delayed"), Kept()
    with fp8lab.torch.watch(model, kept, every=3) as step:
        for i in range(5):
            assert (model.up._fp8_recorder is not None) == (i % 3 == 0)
            model(log_normal(4, 64, seed=i)).sum().backward()
            step()
    assert {at for *_, at in kept.seen} == {0, 3}
    amaxes = {at: value for name, value, at in kept.seen if name == "fp8/up/activation/amax"}
    assert amaxes[3] == float(log_normal(4, 64, seed=3).abs().max())
    assert model.up._fp8_recorder is None
    with pytest.raises(ValueError, match="every: expected 1 or more, got 0"):
        with fp8lab.torch.watch(model, kept, every=0):
            pass


def test_errors(tmp_path):
    with pytest.raises(ValueError, match="statistics: expected a pass of a layer that casts, got none"):
        fp8lab.torch.write_statistics({}, tmp_path)
    table = fp8lab.results.Table("t", "T", (fp8lab.results.Column("a", "1", "a"),), {"a": np.arange(2)})
    with pytest.raises(ValueError, match="experiment name: expected"):
        fp8lab.results.write(tmp_path, [table], experiment="../mine", question="q")
    with pytest.raises(ValueError, match="each name once"):
        fp8lab.results.write(tmp_path, [table, table], experiment="mine", question="q")
