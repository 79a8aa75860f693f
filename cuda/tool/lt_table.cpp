#include "tool/lt_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab::cuda {
namespace {

constexpr std::string_view kFirst = "# fp8lab cublaslt 1";
constexpr std::array<std::string_view, 16> kFields{
    "m",       "n",        "k",     "a",    "b",   "output", "accumulation", "outputs",
    "fitting", "interval", "parts", "tile", "cut", "order",  "scale_order",  "rounding"};
constexpr std::string_view kNone = "-";
constexpr std::size_t kModelFields = 9;  // the first of those that are `-` without a model
constexpr std::int64_t kMostSize = std::numeric_limits<std::int32_t>::max();

std::string columns() { return fmt::format("{}", fmt::join(kFields, ",")); }

/// The fields of one row, for error messages with their names and the place of the row.
class Fields {
 public:
  Fields(std::string_view line, std::string where) : where_(std::move(where)) {
    std::size_t count = 0;
    for (std::size_t begin = 0; begin <= line.size(); ++count) {
      const std::size_t end = std::min(line.find(',', begin), line.size());
      if (count < kFields.size()) texts_[count] = line.substr(begin, end - begin);
      begin = end + 1;
    }
    require(count == kFields.size(), where_, fmt::format("{} fields", kFields.size()), count);
  }

  [[nodiscard]] bool is_none(std::size_t field) const { return texts_[field] == kNone; }

  [[nodiscard]] std::int64_t integer(std::size_t field, std::int64_t least,
                                     std::int64_t most) const {
    const std::string_view text = texts_[field];
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    require(
        error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
        name(field), fmt::format("an integer from {} to {}", least, most), text);
    return value;
  }

  [[nodiscard]] FormatId format_of(std::size_t field, std::span<const FormatId> allowed) const {
    std::string names;
    for (const FormatId id : allowed) {
      if (texts_[field] == format(id).name) return id;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", format(id).name);
    }
    throw Error(name(field), names, texts_[field]);
  }

  [[nodiscard]] bool is(std::size_t field, std::string_view yes, std::string_view no) const {
    require(texts_[field] == yes || texts_[field] == no, name(field),
            fmt::format("{} or {}", yes, no), texts_[field]);
    return texts_[field] == yes;
  }

  /// `find(text)`, whose error gets the place of the field.
  template <typename Find>
  [[nodiscard]] auto named(std::size_t field, Find find) const {
    try {
      return find(texts_[field]);
    } catch (const Error& error) {
      throw Error(fmt::format("{}: {}", name(field), error.what()));
    }
  }

  [[nodiscard]] std::string name(std::size_t field) const {
    return fmt::format("{}: {}", where_, kFields[field]);
  }

 private:
  std::string where_;
  std::array<std::string_view, kFields.size()> texts_{};
};

/// The fields from the interval on, each of which may be unknown.
LtKnown parse_known(const Fields& fields, std::int64_t k) {
  const auto set = [&](auto& value, std::size_t field, auto read) {
    if (!fields.is_none(field)) value = read(field);
  };
  const auto integer = [&](std::int64_t least, std::int64_t most) {
    return [&fields, least, most](std::size_t field) { return fields.integer(field, least, most); };
  };
  const auto named = [&](auto find) {
    return [&fields, find](std::size_t field) { return fields.named(field, find); };
  };
  LtKnown known;
  set(known.interval, 9, integer(0, kMostSize));
  std::optional<std::int64_t> parts;
  set(parts, 10, integer(1, k));
  if (parts) known.parts = static_cast<int>(*parts);
  set(known.tile, 11, integer(1, kMostSize));
  set(known.cut, 12, named(find_split_cut));
  set(known.order, 13, named(find_split_order));
  set(known.scale_order, 14, named(find_scale_order));
  set(known.rounding, 15, named(find_lt_rounding));
  if (known.parts && known.tile) {
    const std::int64_t tiles = (k + *known.tile - 1) / *known.tile;
    require(*known.parts <= tiles, fields.name(10), fmt::format("at most {} tiles", tiles),
            *known.parts);
  }
  return known;
}

LtRow parse_row(std::string_view line, const std::string& where) {
  constexpr std::array kInputs{FormatId::e4m3fn, FormatId::e5m2};
  constexpr std::array kOutputs{FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::e4m3fn,
                                FormatId::e5m2};
  const Fields fields(line, where);
  LtRow row;
  row.call = {fields.integer(0, 1, kMostSize), fields.integer(1, 1, kMostSize),
              fields.integer(2, 1, kMostSize), fields.format_of(3, kInputs),
              fields.format_of(4, kInputs),    fields.format_of(5, kOutputs),
              fields.is(6, "fast", "slow")};
  row.outputs = static_cast<std::uint64_t>(fields.integer(7, 1, row.call.m * row.call.n));
  row.fitting = static_cast<std::uint64_t>(fields.integer(8, 0, kMostSize));
  row.known = parse_known(fields, row.call.k);
  if (row.fitting > 1) return row;
  for (std::size_t i = kModelFields; i < kFields.size(); ++i)
    require(fields.is_none(i) == (row.fitting == 0), fields.name(i),
            row.fitting == 0 ? "-, since no candidate fits" : "a value, since one candidate fits",
            fields.is_none(i) ? "-" : "a value");
  return row;
}

void parse_header(std::string_view line, const std::string& where, LtTable& table) {
  const std::size_t colon = line.find(": ");
  require(line.starts_with("# ") && colon != std::string_view::npos && colon > 2, where,
          "`# key: value`", line);
  const std::string key(line.substr(2, colon - 2));
  require(table.header.emplace(key, line.substr(colon + 2)).second, where, "each key once", key);
}

}  // namespace

const LtRow* LtTable::find(const LtCall& call) const {
  const auto found = std::ranges::find(rows, call, &LtRow::call);
  return found == rows.end() ? nullptr : &*found;
}

LtRow row_of(const LtCall& call, const LtFinding& finding) {
  return {call, finding.outputs, finding.fitting.size(), in_common(finding.fitting)};
}

std::string to_text(const LtTable& table) {
  std::string text = fmt::format("{}\n", kFirst);
  for (const auto& [key, value] : table.header) text += fmt::format("# {}: {}\n", key, value);
  text += columns() + "\n";
  for (const LtRow& row : table.rows) {
    const LtCall& call = row.call;
    text += fmt::format("{},{},{},{},{},{},{},{},{}", call.m, call.n, call.k, format(call.a).name,
                        format(call.b).name, format(call.output).name, call.fast ? "fast" : "slow",
                        row.outputs, row.fitting);
    const LtKnown& known = row.known;
    const auto number = [](const auto& value) {
      return value ? fmt::format("{}", *value) : std::string(kNone);
    };
    const auto name = [](const auto& value) {
      using fp8lab::to_string;
      return value ? std::string(to_string(*value)) : std::string(kNone);
    };
    text += fmt::format(",{},{},{},{},{},{},{}\n", number(known.interval), number(known.parts),
                        number(known.tile), name(known.cut), name(known.order),
                        name(known.scale_order), name(known.rounding));
  }
  return text;
}

LtTable parse_lt_table(const std::string& text, const std::string& name) {
  LtTable table;
  bool in_rows = false;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    const std::string where = fmt::format("{}:{}", name, ++number);
    require(end != std::string::npos, where, "an end of line", "the end of the file");
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (number == 1) {
      require(line == kFirst, where, kFirst, line);
    } else if (in_rows) {
      table.rows.push_back(parse_row(line, where));
      require(table.find(table.rows.back().call) == &table.rows.back(), where, "each call once",
              "a second row of it");
    } else if (line.starts_with('#')) {
      parse_header(line, where, table);
    } else {
      require(line == columns(), where, columns(), line);
      in_rows = true;
    }
  }
  require(in_rows, name, "a line of columns", "none");
  return table;
}

LtTable read_lt_table(const std::filesystem::path& file) {
  return parse_lt_table(read_file(file), file.string());
}

void add_to_lt_table(const std::filesystem::path& file,
                     const std::map<std::string, std::string>& header, const LtRow& row) {
  LtTable table{header, {}};
  if (std::filesystem::exists(file)) table = read_lt_table(file);
  std::erase_if(table.rows, [&](const LtRow& old) { return old.call == row.call; });
  table.rows.push_back(row);
  write_file(file, to_text(table));
}

}  // namespace fp8lab::cuda
