#include <chrono>
#include <string>
#include <tuple>

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/machine.hpp"
#include "lab/experiment/result_files.hpp"

namespace fp8lab::python {
namespace {

using Text = std::string;
using ColumnFields = std::tuple<Text, Text, Text>;
using SeriesFields = std::tuple<Text, std::vector<double>, std::vector<double>>;
using PlotFields = std::tuple<Text, Text, Text, Text, std::vector<SeriesFields>>;
using TableFields = std::tuple<Text, Text, std::vector<ColumnFields>, nb::list>;

/// A bool is an int to Python, so it is asked for first.
Cell cell_of(nb::handle x) {
  if (PyBool_Check(x.ptr())) return nb::cast<bool>(x);
  if (PyLong_Check(x.ptr())) return nb::cast<std::int64_t>(x);
  if (PyFloat_Check(x.ptr())) return nb::cast<double>(x);
  if (PyUnicode_Check(x.ptr())) return nb::cast<std::string>(x);
  throw Error("a cell", "a bool, an int, a float or a str",
              nb::cast<std::string>(nb::str(x.type())));
}

Table table_of(const TableFields& fields) {
  const auto& [name, title, column_fields, rows] = fields;
  std::vector<Column> columns;
  for (const auto& [column, unit, description] : column_fields)
    columns.push_back({column, unit, description});
  Table table(name, title, std::move(columns));
  for (const nb::handle row : rows) {
    std::vector<Cell> cells;
    for (const nb::handle x : nb::cast<nb::sequence>(row)) cells.push_back(cell_of(x));
    table.add_row(std::move(cells));
  }
  return table;
}

Plot plot_of(const PlotFields& fields) {
  const auto& [name, title, x, y, all] = fields;
  Plot plot{name, title, {x}, {y}, {}};
  for (const auto& [label, xs, ys] : all) {
    require(xs.size() == ys.size(), "plot " + name, "as many y as x", std::to_string(ys.size()));
    plot.series.push_back({label, xs, ys, Series::Style::lines});
  }
  return plot;
}

Text write(const Text& experiment, const Text& question, const Text& parameters_toml,
           std::uint64_t seed, const Text& command, const std::vector<Text>& findings,
           const std::vector<TableFields>& tables, const std::vector<PlotFields>& plots,
           double duration_seconds, int threads, const Text& out) {
  Results results;
  for (const TableFields& fields : tables) results.tables.push_back(table_of(fields));
  for (const PlotFields& fields : plots) results.plots.push_back(plot_of(fields));
  results.findings = findings;
  const auto lasted = std::chrono::duration_cast<std::chrono::system_clock::duration>(
      std::chrono::duration<double>(duration_seconds));
  const RunRecord record{.experiment = experiment,
                         .question = question,
                         .parameters = Parameters::from_toml(parameters_toml, false),
                         .seed = seed,
                         .quick = false,
                         .threads = threads,
                         .command = command,
                         .started = std::chrono::system_clock::now() - lasted,
                         .duration_seconds = duration_seconds};
  const nb::gil_scoped_release no_gil;
  return write_results(results, record, out, Plots::draw).folder.string();
}

}  // namespace

void bind_results(nb::module_& m) {
  m.def("version", build_version);
  m.def("write_results", write, nb::kw_only(), "experiment"_a, "question"_a, "parameters_toml"_a,
        "seed"_a, "command"_a, "findings"_a, "tables"_a, "plots"_a, "duration_seconds"_a,
        "threads"_a, "out"_a);
}

}  // namespace fp8lab::python
