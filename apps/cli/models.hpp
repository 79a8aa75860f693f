#pragma once
// `--models FILE`: models that users define, for every option that names one.

#include <string>
#include <vector>

#include "fp8lab/accumulate/definition.hpp"
#include "lab/experiment/parameters.hpp"
#include "parser.hpp"

namespace fp8lab::cli {

/// The files that were named, in their order.
using ModelFiles = std::vector<std::string>;

void add_models_option(Command& command, ModelFiles& files);

/// The definitions of these files: TOML, or JSON where the name ends in .json. Throws `Error`.
ModelBook load_models(const ModelFiles& files);

/// Every text of parameters that name models, as text that needs no file; throws `Error` where one
/// is no model.
void resolve_models(Parameters& parameters, const ModelBook& book);

}  // namespace fp8lab::cli
