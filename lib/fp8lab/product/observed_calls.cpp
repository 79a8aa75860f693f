#include "fp8lab/product/observed_calls.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "fp8lab/accumulate/model.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/names.hpp"
#include "fp8lab/io/checksum.hpp"
#include "fp8lab/io/csv.hpp"
#include "fp8lab/io/files.hpp"

namespace fp8lab {
namespace {

constexpr std::array<std::string_view, 5> kRoundings{"once", "sum_too", "parts_too", "through_bf16",
                                                     "through_f16"};
constexpr std::string_view kFirst = "# fp8lab cublaslt 2";
constexpr std::array<std::string_view, 16> kFields{
    "m",       "n",        "k",     "a",    "b",   "output", "accumulation", "outputs",
    "fitting", "interval", "parts", "tile", "cut", "order",  "scale_order",  "rounding"};
constexpr std::size_t kModelFields = 9;  // the first of those that describe a candidate
constexpr std::string_view kNone = "-";
constexpr std::int64_t kMostSize = std::numeric_limits<std::int32_t>::max();

/// The fields of one row, for error messages with their names and the place of the row.
class Fields {
 public:
  Fields(const std::vector<std::string>& texts, std::string where)
      : texts_(texts), where_(std::move(where)) {}

  [[nodiscard]] bool is_none(std::size_t field) const { return texts_[field] == kNone; }

  [[nodiscard]] std::int64_t integer(std::size_t field, std::int64_t least,
                                     std::int64_t most) const {
    const std::string& text = texts_[field];
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    require(
        error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most,
        name(field), fmt::format("an integer from {} to {}", least, most), text);
    return value;
  }

  [[nodiscard]] FormatId format_of(std::size_t field, std::span<const FormatId> allowed) const {
    std::vector<std::string_view> names;
    for (const FormatId id : allowed) {
      if (texts_[field] == format(id).name) return id;
      names.push_back(format(id).name);
    }
    throw Error(name(field), fmt::format("{}", fmt::join(names, ", ")), texts_[field]);
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
  const std::vector<std::string>& texts_;
  std::string where_;
};

CallShape parse_shape(const Fields& fields) {
  constexpr std::array kInputs{FormatId::e4m3fn, FormatId::e5m2};
  constexpr std::array kOutputs{FormatId::f32, FormatId::bf16, FormatId::f16, FormatId::e4m3fn,
                                FormatId::e5m2};
  return {fields.integer(0, 1, kMostSize), fields.integer(1, 1, kMostSize),
          fields.integer(2, 1, kMostSize), fields.format_of(3, kInputs),
          fields.format_of(4, kInputs),    fields.format_of(5, kOutputs),
          fields.is(6, "fast", "slow")};
}

CallModel parse_model(const Fields& fields, std::int64_t k) {
  CallModel model;
  model.interval = fields.integer(9, 0, kMostSize);
  model.split = {static_cast<int>(fields.integer(10, 1, k)), fields.integer(11, 1, kMostSize),
                 fields.named(12, find_split_cut), fields.named(13, find_split_order)};
  model.scale_order = fields.named(14, find_scale_order);
  model.rounding = fields.named(15, find_call_rounding);
  const std::int64_t tiles = (k + model.split.tile - 1) / model.split.tile;
  require(model.split.parts <= tiles, fields.name(10), fmt::format("at most {} tiles", tiles),
          model.split.parts);
  return model;
}

/// Adds the row to its call, the last one, or to a new one; `missing` counts the rows of the last
/// call that are still to come.
void add_row(const Fields& fields, const std::string& where, CallTable& table,
             std::int64_t& missing) {
  const CallShape call = parse_shape(fields);
  const auto outputs = static_cast<std::uint64_t>(fields.integer(7, 1, kMostSize));
  const std::int64_t fitting = fields.integer(8, 0, kMostSize);
  if (missing == 0) {
    require(table.find(call) == nullptr, where, "the rows of a call together, each call once",
            to_string(call));
    table.calls.push_back({call, outputs});
    missing = std::max<std::int64_t>(fitting, 1);
  }
  ObservedCall& last = table.calls.back();
  require(last.call == call && last.outputs == outputs &&
              missing + static_cast<std::int64_t>(last.fitting.size()) ==
                  std::max<std::int64_t>(fitting, 1),
          where, fmt::format("{} more rows of {}", missing, to_string(last.call)),
          "a row of another call");
  --missing;
  if (fitting > 0) {
    const CallModel model = parse_model(fields, call.k);
    require(std::ranges::count(last.fitting, model) == 0, where, "each candidate once",
            to_string(model));
    last.fitting.push_back(model);
    return;
  }
  for (std::size_t i = kModelFields; i < kFields.size(); ++i)
    require(fields.is_none(i), fields.name(i), "-, since no candidate fits", "a value");
}

void parse_header(std::string_view line, const std::string& where, CallTable& table) {
  const std::size_t colon = line.find(": ");
  require(line.starts_with("# ") && colon != std::string_view::npos && colon > 2, where,
          "`# key: value`", line);
  const std::string key(line.substr(2, colon - 2));
  require(table.header.emplace(key, line.substr(colon + 2)).second, where, "each key once", key);
}

/// Throws unless the text below the line that gives a checksum has this checksum.
void require_checksum(std::string_view line, std::string_view below, const std::string& where) {
  const std::string got = crc32_text(below);
  require(line.substr(line.find(": ") + 2) == got, where + ": crc32",
          fmt::format("{} (the file was changed; without this line it is read as it is)", got),
          line);
}

}  // namespace

std::string to_string(const CallShape& call) {
  return fmt::format("{}x{}x{} of {} and {} to {}, {}", call.m, call.n, call.k, format(call.a).name,
                     format(call.b).name, format(call.output).name, call.fast ? "fast" : "slow");
}

std::string_view to_string(CallRounding rounding) {
  return kRoundings[static_cast<std::size_t>(rounding)];
}
CallRounding find_call_rounding(std::string_view name) {
  return find_enumerator<CallRounding>(kRoundings, "rounding", name);
}

std::string to_string(const CallModel& model) {
  std::string text = fmt::format("N_C {}, ", model.interval);
  if (model.split.parts > 1)
    text += fmt::format("split {} {} {} tile {}, ", model.split.parts, to_string(model.split.cut),
                        to_string(model.split.order), model.split.tile);
  return text + fmt::format("{}, {}", to_string(model.scale_order), to_string(model.rounding));
}

std::vector<std::pair<std::string_view, std::string>> fields_of(const CallModel& model) {
  const std::array<std::string, kFields.size() - kModelFields> texts{
      std::to_string(model.interval),
      std::to_string(model.split.parts),
      std::to_string(model.split.tile),
      std::string(to_string(model.split.cut)),
      std::string(to_string(model.split.order)),
      std::string(to_string(model.scale_order)),
      std::string(to_string(model.rounding))};
  std::vector<std::pair<std::string_view, std::string>> fields;
  for (std::size_t i = 0; i < texts.size(); ++i)
    fields.emplace_back(kFields[kModelFields + i], texts[i]);
  return fields;
}

const ObservedCall* CallTable::find(const CallShape& call) const {
  const auto found = std::ranges::find(calls, call, &ObservedCall::call);
  return found == calls.end() ? nullptr : &*found;
}

std::string to_text(const CallTable& table) {
  std::string text;
  for (const auto& [key, value] : table.header) text += fmt::format("# {}: {}\n", key, value);
  text += fmt::format("# model: {}\n{}\n", table.model, fmt::join(kFields, ","));
  for (const ObservedCall& observed : table.calls) {
    const CallShape& call = observed.call;
    const std::string begin =
        fmt::format("{},{},{},{},{},{},{},{},{}", call.m, call.n, call.k, format(call.a).name,
                    format(call.b).name, format(call.output).name, call.fast ? "fast" : "slow",
                    observed.outputs, observed.fitting.size());
    for (const CallModel& model : observed.fitting) {
      text += begin;
      for (const auto& [name, value] : fields_of(model)) text += "," + value;
      text += "\n";
    }
    if (observed.fitting.empty()) {
      text += begin;
      for (std::size_t i = kModelFields; i < kFields.size(); ++i) text += fmt::format(",{}", kNone);
      text += "\n";
    }
  }
  return fmt::format("{}\n# crc32: {}\n{}", kFirst, crc32_text(text), text);
}

CallTable parse_call_table(const std::string& text, const std::string& name) {
  CallTable table;
  std::size_t begin = 0;
  int number = 0;
  for (; begin < text.size() && text[begin] == '#'; ++number) {
    const std::string where = fmt::format("{}:{}", name, number + 1);
    const std::size_t end = text.find('\n', begin);
    require(end != std::string::npos, where, "an end of line", "the end of the file");
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (number == 0)
      require(line == kFirst, where, kFirst, line);
    else if (number == 1 && line.starts_with("# crc32: "))
      require_checksum(line, std::string_view(text).substr(begin), where);
    else
      parse_header(line, where, table);
  }
  require(number > 0, name, kFirst, text.empty() ? "an empty file" : "another first line");
  auto model = table.header.extract("model");
  require(!model.empty(), name, "a line `# model: INSTRUCTION`", "none");
  try {
    table.model = find_instruction_model(model.mapped()).name;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", name, error.what()));
  }
  require(text.ends_with('\n'), name, "an end of line", "the end of the file");
  std::vector<std::vector<std::string>> rows;
  try {
    rows = parse_csv(std::string_view(text).substr(begin));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: below line {}: {}", name, number, error.what()));
  }
  const std::vector<std::string> columns(kFields.begin(), kFields.end());
  require(!rows.empty() && rows.front() == columns, fmt::format("{}:{}", name, number + 1),
          fmt::format("{}", fmt::join(kFields, ",")),
          rows.empty() ? "none" : fmt::format("{}", fmt::join(rows.front(), ",")));
  std::int64_t missing = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const std::string where = fmt::format("{}:{}", name, static_cast<std::size_t>(number) + i + 1);
    add_row(Fields(rows[i], where), where, table, missing);
  }
  require(missing == 0, name,
          table.calls.empty()
              ? ""
              : fmt::format("{} more rows of {}", missing, to_string(table.calls.back().call)),
          "the end of the file");
  return table;
}

CallTable read_call_table(const std::filesystem::path& file) {
  return parse_call_table(read_file(file), file.string());
}

}  // namespace fp8lab
