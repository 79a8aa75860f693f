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


def test_findings_of_one_layer_alone(tmp_path):
    statistics = fp8lab.torch.LayerStatistics(None, None, None, 30.0, 0.125)
    results = fp8lab.results.read(fp8lab.torch.write_statistics({"only": statistics}, tmp_path))
    assert results.description["findings"] == [
        "The output farthest from that of uncast operands: only, 30 dB of signal over noise.",
        "The sums farthest from exact ones: only, 0.125 relative L2.",
    ]


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


STEPS = 40


def watched_run(recipe, reference=None, wrong_from=None, **options):
    """Trains on fixed batches; from step `wrong_from` on, gradients have a scale that is 8 times off."""
    model = mlp(recipe)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    switch = fp8lab.torch.KillSwitch(optimizer, reference, loss_gap=10.0, window=4, patience=2, **options)
    target = log_normal(16, 16, seed=3)
    done = []
    with fp8lab.torch.watch(model, Kept(), every=50, kill_switch=switch) as step:
        batch = 0
        while batch < STEPS:
            optimizer.zero_grad()
            loss = (model(log_normal(16, 64, seed=batch)) - target).square().mean()
            loss.backward()
            if wrong_from is not None and batch >= wrong_from and model.up.recipe.name != "bf16":
                for p in model.parameters():
                    p.grad.mul_(8.0)
            optimizer.step()
            event = step(loss)
            done.append(batch)
            batch = event.back_to if event else batch + 1
    return switch, done, model


def test_the_kill_switch_leaves_a_healthy_run_alone():
    reference = watched_run("bf16")[0].figures
    assert len(reference) == STEPS
    switch, done, model = watched_run("te-current", reference, action="roll-back")
    assert done == list(range(STEPS)) and not switch.events
    for name, expected in watched_run("te-current")[2].state_dict().items():
        assert torch.equal(model.state_dict()[name], expected), name


def test_the_kill_switch_stops_a_run_that_fails():
    reference = watched_run("bf16")[0].figures
    with pytest.raises(fp8lab.torch.RunStopped, match="kill switch: the (gradient amax|second moment) is") as stopped:
        watched_run("te-current", reference, wrong_from=12)
    event = stopped.value.event
    assert event.action == "stop" and 13 <= event.step <= 22 and not 0.5 <= event.value <= 2
    assert event.back_to == event.step + 1


def test_the_kill_switch_rolls_back_a_few_times():
    reference = watched_run("bf16")[0].figures
    with pytest.raises(fp8lab.torch.RunStopped) as stopped:
        watched_run("te-current", reference, wrong_from=12, action="roll-back", snapshot_every=2, most_rollbacks=2)
    # The same arithmetic fails at the same step again.
    assert stopped.value.event.step == watched_stop(reference)


def watched_stop(reference):
    with pytest.raises(fp8lab.torch.RunStopped) as stopped:
        watched_run("te-current", reference, wrong_from=12)
    return stopped.value.event.step


def test_the_kill_switch_goes_on_in_bf16():
    reference = watched_run("bf16")[0].figures
    switch, done, model = watched_run("te-current", reference, wrong_from=12, action="bf16", snapshot_every=2)
    (event,) = switch.events
    assert event.action == "bf16" and event.step == watched_stop(reference)
    assert event.step - 8 <= event.back_to <= event.step - 5
    assert done == [*range(event.step + 1), *range(event.back_to, STEPS)]
    assert model.up.recipe.name == "bf16" and len(switch.figures) == STEPS
    assert all(np.isfinite(one.loss) for one in switch.figures)


def test_the_kill_switch_takes_a_loss_that_is_no_number_as_an_alarm():
    model = mlp("te-current")
    optimizer = torch.optim.AdamW(model.parameters())
    switch = fp8lab.torch.KillSwitch(optimizer, [fp8lab.torch.StepFigures(1.0, 1.0, 1.0)] * 3)
    model(log_normal(4, 64)).sum().backward()
    optimizer.step()
    with pytest.raises(fp8lab.torch.RunStopped, match="loss gap is inf nats above the reference at step 0"):
        switch.step(model, float("nan"))


def test_the_kill_switch_watches_matrices_of_any_dimension():
    """By its definition: all weights of two dimensions or more but embeddings, also experts and convolutions."""
    model = nn.Module()
    model.experts = nn.Parameter(log_normal(3, 4, 5))
    model.conv, model.linear = nn.Conv2d(2, 3, 3), nn.Linear(4, 6)
    model.embedding = nn.Embedding(8, 4)
    watched = [model.experts, model.conv.weight, model.linear.weight]
    others = [model.conv.bias, model.linear.bias, model.embedding.weight]
    for largest in watched:
        for i, p in enumerate((*watched, *others)):
            p.grad = log_normal(*p.shape, seed=i, spread=0.1) * (1e-3 if any(p is one for one in watched) else 50.0)
        largest.grad *= 100
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step()
        switch = fp8lab.torch.KillSwitch(optimizer)
        switch.step(model, 2.5)
        moments = torch.cat([optimizer.state[p]["exp_avg_sq"].reshape(-1).double() for p in watched])
        assert switch.figures[0][:2] == (2.5, float(largest.grad.abs().max()))
        assert switch.figures[0].second_moment == pytest.approx(float(moments.mean()), rel=1e-12)


def test_what_a_kill_switch_refuses():
    model = mlp("te-current")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for name, value in {"action": "halt", "amax_ratio": 1.0, "moment_ratio": 0.5, "loss_gap": -1.0, "window": 0,
                        "patience": 0, "snapshot_every": 0, "most_rollbacks": 0}.items():
        with pytest.raises(ValueError, match=f"^{name}: expected"):
            fp8lab.torch.KillSwitch(optimizer, **{name: value})
    model(log_normal(4, 64)).sum().backward()
    optimizer.step()
    with pytest.raises(ValueError, match="optimizer: expected one with exp_avg_sq"):
        fp8lab.torch.KillSwitch(optimizer).step(model, 1.0)
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    with pytest.raises(ValueError, match="reference: expected figures of step 0, got those of 0 steps"):
        fp8lab.torch.KillSwitch(optimizer, []).step(model, 1.0)
    with fp8lab.torch.watch(model, Kept(), kill_switch=fp8lab.torch.KillSwitch(optimizer)) as step:
        with pytest.raises(ValueError, match="loss: expected a number for a kill_switch alone, got none"):
            step()
    with fp8lab.torch.watch(model, Kept()) as step:
        with pytest.raises(ValueError, match="got one without a kill_switch"):
            step(1.0)


def test_errors(tmp_path):
    with pytest.raises(ValueError, match="statistics: expected a pass of a layer that casts, got none"):
        fp8lab.torch.write_statistics({}, tmp_path)
    table = fp8lab.results.Table("t", "T", (fp8lab.results.Column("a", "1", "a"),), {"a": np.arange(2)})
    with pytest.raises(ValueError, match="experiment name: expected"):
        fp8lab.results.write(tmp_path, [table], experiment="../mine", question="q")
    with pytest.raises(ValueError, match="each name once"):
        fp8lab.results.write(tmp_path, [table, table], experiment="mine", question="q")
