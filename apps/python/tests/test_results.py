"""Result folders: types, the missing and the malformed, and Parquet there and back."""

import json
import os
import subprocess
import sys
import warnings
import zlib

import numpy as np
import pytest

import fp8lab.results
from fp8lab.results import read, read_parquet, to_parquet

COLUMNS = ["tiles", "repeat", "seed", "note", "ok", "error", "count"]
ROWS = '''16,0,10385155115808463364,"a, ""b""",true,0.1,3
16,1,7,,false,-0.0,
32,0,8,é,true,nan,9007199254740993
'''


def sweep_folder(folder, rows=ROWS, schema="fp8lab.sweep.1"):
    folder.mkdir(exist_ok=True)
    columns = [{"name": n, "unit": "%" if n == "error" else "1", "description": n} for n in COLUMNS]
    head = {"name": "t", "title": "T", "file": "t.csv", "rows": 3, "columns": columns}
    sweep = {"experiment": "demo", "seed": 1, "parameters": {"sigma": "0.4"}}
    description = {"schema": schema, "sweep": sweep, "command": "fp8lab", "tables": [head]}
    (folder / "sweep.json").write_text(json.dumps(description))
    (folder / "t.csv").write_text(",".join(COLUMNS) + "\n" + rows, encoding="utf-8")
    return folder


def assert_same(one, two):
    assert one.columns == two.columns and one.title == two.title
    for column in one.columns:
        a, b = one[column.name], two[column.name]
        assert a.dtype == b.dtype and type(a) is type(b), column.name
        assert np.array_equal(np.ma.getmaskarray(a), np.ma.getmaskarray(b))
        a, b = np.ma.getdata(a), np.ma.getdata(b)
        if a.dtype == float:
            assert a.tobytes() == b.tobytes(), column.name  # -0 and NaN too
        else:
            assert (a == b).all(), column.name


def test_types(tmp_path):
    table = read(sweep_folder(tmp_path))["t"]
    assert len(table) == 3
    assert table["tiles"].dtype == np.int64
    assert table["seed"].dtype == np.uint64 and table["seed"][0] == 10385155115808463364
    assert table["note"].tolist() == ['a, "b"', "", "é"]
    assert table["ok"].tolist() == [True, False, True]
    assert np.signbit(table["error"][1]) and np.isnan(table["error"][2])
    assert table["count"].mask.tolist() == [False, True, False]
    assert table["count"][2] == 2**53 + 1
    assert table.where(tiles=16, ok=False)["repeat"].tolist() == [1]
    assert len(table.where(count=0)) == 0, "a missing number is not 0"


def test_malformed_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"folder: expected one with result.json or sweep.json"):
        read(tmp_path)
    with pytest.raises(ValueError, match=r"expected 3 rows, got 2"):
        read(sweep_folder(tmp_path, ROWS[: ROWS.rindex("32")]))
    with pytest.raises(ValueError, match=r"t.csv:4: expected 7 cells, got 2"):
        read(sweep_folder(tmp_path, ROWS[: ROWS.rindex("32")] + "32,0\n"))
    for schema in ("fp8lab.sweep.9", "fp8lab.result.1", "", None):
        with pytest.raises(ValueError, match=f"schema: expected fp8lab.sweep.1, got {schema}$"):
            read(sweep_folder(tmp_path, schema=schema))
    description = json.loads((tmp_path / "sweep.json").read_text())
    del description["schema"]
    (tmp_path / "sweep.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="schema: expected fp8lab.sweep.1, got None$"):
        read(tmp_path)
    changed = sweep_folder(tmp_path)
    description = json.loads((changed / "sweep.json").read_text())
    description["tables"][0]["crc32"] = "00000000"
    (changed / "sweep.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match=r"t.csv: crc32: expected 00000000 .*, got [0-9a-f]{8}"):
        read(changed)
    (changed / "sweep.json").write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"sweep.json: expected lists and objects .* fewer"):
        read(changed)
    results = read(sweep_folder(tmp_path))
    with pytest.raises(ValueError, match=r"table: expected one of t, got 'u'"):
        results["u"]
    with pytest.raises(ValueError, match=r"column: expected one of tiles, .*, got 'sigma'"):
        results["t"]["sigma"]


def test_parquet_there_and_back(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    folder = sweep_folder(tmp_path / "sweep")
    to_parquet(folder, tmp_path / "t.parquet")
    back = read_parquet(tmp_path / "t.parquet")
    assert back.description == read(folder).description
    assert_same(read(folder)["t"], back["t"])
    # What a reader that does not know fp8lab sees.
    arrow = parquet.read_table(tmp_path / "t.parquet")
    assert arrow.schema.field("error").metadata == {b"unit": b"%", b"description": b"error"}
    about = json.loads(arrow.schema.metadata[b"fp8lab"])
    assert about["results"]["sweep"]["seed"] == 1
    assert about["results"]["sweep"]["parameters"] == {"sigma": "0.4"}
    assert arrow["count"].null_count == 1 and str(arrow["seed"].type) == "uint64"


def test_frames_of_pandas_keep_every_number(tmp_path):
    pd = pytest.importorskip("pandas")
    frame = read(sweep_folder(tmp_path))["t"].to_pandas()
    assert list(frame.columns) == COLUMNS and len(frame) == 3
    assert frame["seed"].tolist() == [10385155115808463364, 7, 8]
    assert frame["note"].tolist() == ['a, "b"', "", "é"] and frame["note"].dtype == object
    assert frame["ok"].tolist() == [True, False, True]
    assert frame["count"].isna().tolist() == [False, True, False]
    assert int(frame["count"][2]) == 2**53 + 1 and frame["count"].dtype == pd.Int64Dtype()
    assert np.signbit(frame["error"][1]) and np.isnan(frame["error"][2])
    assert frame.attrs["title"] == "T" and frame.attrs["units"]["error"] == "%"


def test_without_pandas_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"to_pandas needs pandas: pip install pandas"):
        read(sweep_folder(tmp_path))["t"].to_pandas()


def test_parquet_of_others_is_refused(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"file: expected one that .*to_parquet wrote"):
        read_parquet(tmp_path / "x.parquet")


def test_without_pyarrow_the_message_says_what_to_install(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # what a missing package looks like
    with pytest.raises(ImportError, match=r"Parquet needs pyarrow: pip install pyarrow"):
        to_parquet(sweep_folder(tmp_path), tmp_path / "t.parquet")


@pytest.mark.skipif("FP8LAB_TOOL" not in os.environ, reason="FP8LAB_TOOL names no fp8lab command")
def test_a_sweep_of_the_tool(tmp_path):
    pytest.importorskip("pyarrow")
    sets = ["elements=2048", "repeats=2", "outliers_per_decade=2", "published_repeats=1"]
    command = [os.environ["FP8LAB_TOOL"], "sweep", "outlier", "--quick", "--axis", "tiles=16,64"]
    command += ["--set=containment_elements=1024", *(f"--set={s}" for s in sets)]
    subprocess.run([*command, "--out", tmp_path / "grid"], check=True, capture_output=True)
    results = fp8lab.results.read(tmp_path / "grid")
    with pytest.raises(ValueError, match=r"table: expected one of containment, damage, .*got none"):
        to_parquet(tmp_path / "grid", tmp_path / "x.parquet")
    for name, table in results.items():
        to_parquet(tmp_path / "grid", tmp_path / "x.parquet", name)
        assert_same(table, read_parquet(tmp_path / "x.parquet")[name])
    assert set(results["damage"]["tiles"]) == {16, 64}
    assert results["damage"]["seed"].dtype == np.uint64


def folder_of(folder, columns, text, **head):
    names = columns if isinstance(columns, list) else [columns]
    described = [{"name": name, "unit": "1", "description": ""} for name in names]
    table = {"name": "t", "title": "T", "file": "t.csv", "rows": text.count("\n") - 1, "columns": described} | head
    (folder / "result.json").write_text(json.dumps({"schema": "fp8lab.result.1", "tables": [table]}))
    (folder / "t.csv").write_text(text)
    return folder


@pytest.mark.filterwarnings("ignore:.*no checksum")
def test_integers_up_to_the_largest_are_integers(tmp_path):
    largest = 2**63 - 1
    cells = read(folder_of(tmp_path, "x", f"x\n{largest}\n{-largest - 1}\n0\n-1\n"))["t"]["x"]
    assert cells.dtype == np.int64 and cells.tolist() == [largest, -largest - 1, 0, -1]
    for beyond in (largest + 1, -largest - 2):
        cells = read(folder_of(tmp_path, "x", f"x\n{beyond}\n1\n"))["t"]["x"]
        assert cells.dtype == np.float64 and cells[0] == float(beyond)
    for real in ("1.0", "01", "1e3", "+1", "-0"):
        assert read(folder_of(tmp_path, "x", f"x\n{real}\n"))["t"]["x"].dtype == np.float64, real
    for text in ("1 2", "1_0x", "abc"):
        assert read(folder_of(tmp_path, "x", f"x\n{text}\n"))["t"]["x"].tolist() == [text]


@pytest.mark.filterwarnings("ignore:.*no checksum")
def test_columns_have_the_names_that_are_described(tmp_path):
    for names in (["a", "b"], "a"):
        with pytest.raises(ValueError, match=f"t.csv: expected the columns {', '.join(names)}, got $"):
            read(folder_of(tmp_path, names, ""))
    for header in ("b,a", "a", "a,b,c", "a,B", ""):
        with pytest.raises(ValueError, match=f"t.csv: expected the columns a, b, got {', '.join(header.split(','))}$"):
            read(folder_of(tmp_path, ["a", "b"], f"{header}\n1,2\n"))
    assert read(folder_of(tmp_path, ["a", "b"], "a,b\n1,2\n"))["t"]["b"].tolist() == [2]
    assert read(folder_of(tmp_path, "a", "a\nx\n\ny\n"))["t"]["a"].tolist() == ["x", "", "y"]


@pytest.mark.filterwarnings("ignore:.*no checksum")
def test_a_table_is_a_file_of_the_folder(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    secret = tmp_path / "secret.csv"
    secret.write_text("x\n1\n")
    (folder / "inner").mkdir()
    (folder / "inner" / "s.csv").write_text("x\n1\n")
    (folder / "link.csv").symlink_to(secret)
    for name in ("../secret.csv", str(secret), "inner/s.csv", "link.csv", "./t.csv", "..", ".", "", "none.csv", 3, None):
        folder_of(folder, "x", "x\n1\n", file=name)
        with pytest.raises(ValueError, match=r"file: expected the name of a file in this folder, got "):
            read(folder)
    assert read(folder_of(folder, "x", "x\n1\n"))["t"]["x"].tolist() == [1]


def test_missing_checksums_are_told(tmp_path):
    table = fp8lab.results.Table("t", "T", (fp8lab.results.Column("x", "1", ""),), {"x": np.arange(3)})
    path = fp8lab.results.write(tmp_path, [table], experiment="e", question="?")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(path)
    file = tmp_path / "e" / "result.json"
    whole = file.read_text()
    description = json.loads(whole)
    del description["crc32"]
    file.write_text(json.dumps(description))
    with pytest.warns(UserWarning, match="no checksum of result.json: a change would not be seen") as seen:
        read(path)
    assert len(seen) == 1 and seen[0].filename == __file__
    del description["tables"][0]["crc32"]
    file.write_text(json.dumps(description))
    with pytest.warns(UserWarning, match="no checksum of result.json, t.csv: a change would not be seen"):
        read(path)
    begin = json.dumps(description, indent=2).removesuffix("\n}")  # without that of the table
    file.write_text(f'{begin},\n  "crc32": "{zlib.crc32(begin.encode()):08x}"\n}}\n')
    with pytest.warns(UserWarning, match="no checksum of t.csv: a change would not be seen"):
        read(path)
    file.write_text(whole.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(ValueError, match=r"result.json: crc32: expected [0-9a-f]{8} \(the file was changed\)"):
        read(path)


@pytest.mark.filterwarnings("ignore:.*no checksum")
def test_rows_and_cells_are_counted_both_ways(tmp_path):
    for rows in (1, 3):
        with pytest.raises(ValueError, match=rf"t.csv: expected {rows} rows, got 2$"):
            read(folder_of(tmp_path, ["a", "b"], "a,b\n1,2\n3,4\n", rows=rows))
    for line, cells in (("1,2,3", 3), ("1", 1), ("1,2,", 3)):
        with pytest.raises(ValueError, match=rf"t.csv:3: expected 2 cells, got {cells}$"):
            read(folder_of(tmp_path, ["a", "b"], f"a,b\n1,2\n{line}\n"))


@pytest.mark.filterwarnings("ignore:.*no checksum")
def test_kinds_of_columns(tmp_path):
    for cells, kind, values in (
        (["", ""], "U", ["", ""]), (["", "1"], "i", [None, 1]), (["", "0.5"], "f", [None, 0.5]), (["", "x"], "U", ["", "x"]),
        (["true", "false"], "b", [True, False]), (["true", ""], "U", ["true", ""]), (["true", "1"], "U", ["true", "1"]),
        (["1", "2"], "i", [1, 2]), (["1", "2.0"], "f", [1.0, 2.0]), (["inf", "-inf"], "f", [float("inf"), -float("inf")]),
    ):  # fmt: skip
        lines = "".join(f"{one},{i}\n" for i, one in enumerate(cells))
        column = read(folder_of(tmp_path, ["x", "i"], f"x,i\n{lines}"))["t"]["x"]
        assert column.dtype.kind == kind and column.tolist() == values, cells
        assert isinstance(column, np.ma.MaskedArray) == (None in values), cells
