#pragma once
// A call that is not known by name but was observed: a table of observed_calls.hpp in place of a
// name.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/product/observed_calls.hpp"
#include "fp8lab/product/product.hpp"

namespace fp8lab {

/// `FILE.csv:fast`, or `slow`, then `FIELD=VALUE` with commas between: `output`, which of the
/// observed calls is meant, and choices for fields of candidates that the observation leaves open.
struct TableCall {
  std::string text;  ///< as the user wrote it
  std::string file;
  bool fast = true;
  std::optional<FormatId> output{};
  std::vector<std::pair<std::string, std::string>> choices{};
};

/// Whether a call is a table: `.csv` at its end or before a `:`.
bool is_table_call(std::string_view text);
/// Reads such a text. Throws `Error` that names the part.
TableCall parse_table_call(std::string_view text);

/// The one candidate of this call that gives what was observed and that the choices leave. Throws
/// `Error` for a shape that was not observed, calls that no candidate explains, choices that no
/// candidate has, and, with the fields that differ and their values, for more than one candidate:
/// no field has a default.
CallModel candidate_of(const CallTable& table, const TableCall& call, const CallShape& shape);

/// `spec` with the model, promotion, split and scale order of a call in `table` with these
/// operands, which have one scale each at most. Throws `Error` as above, for other scales, for a
/// split of its own in `spec`, and for a candidate that rounds twice, which products do not.
GemmSpec with_call(const CallTable& table, const TableCall& call, const GemmOperands& operands,
                   GemmSpec spec);

}  // namespace fp8lab
