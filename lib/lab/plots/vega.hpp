#pragma once
// Parts of Vega-Lite specifications that plots and heat maps share.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "lab/plots/plot.hpp"

namespace fp8lab {

using Json = nlohmann::ordered_json;

/// Schema, name, title with `note` below it, size, and the look (fonts, colours of axes and grid).
Json vega_frame(const std::string& name, std::string_view title, const std::string& note);

/// A list of JSON, with null for what is not finite.
Json json_numbers(const std::vector<double>& values);

/// An expression of Vega: the element of `texts` with the index `datum.FIELD`.
std::string vega_lookup(const std::vector<std::string>& texts, std::string_view field);

/// The expression that labels the ticks of a log axis from `low` to `high`: powers of its base as
/// such where numbers would be long, or plain numbers of at most `digits`. `unit` is that of a
/// second scale.
std::string log_labels(const Axis& axis, double low, double high, double unit = 1.0,
                       int digits = 6);

/// Whether labels of the axis from `low` to `high` are powers of its base.
bool labels_are_powers(const Axis& axis, double low, double high);

/// All labels, typeset.
std::vector<std::string> typeset_all(const std::vector<std::string>& labels);

}  // namespace fp8lab
