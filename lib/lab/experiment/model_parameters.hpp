#pragma once
// Parameters that name models (core/model_text.hpp): their range is `of models`, as in
// `accumulators = "1 to 100 of models"`. Parts of such a model are set as `KEY.PARAMETER=VALUE`.

#include <functional>
#include <string>
#include <string_view>

#include "lab/experiment/parameters.hpp"

namespace fp8lab {

/// What a range says after `of` where texts are models.
inline constexpr std::string_view kModelsRange = "models";

/// Whether the texts of this parameter are models.
bool holds_models(const Parameters& parameters, std::string_view key);

/// `KEY.PARAMETER` as KEY and PARAMETER; the second is empty where there is no dot.
struct ParameterPart {
  std::string_view key;
  std::string_view part;
};
ParameterPart parameter_part(std::string_view key);

/// Gives the parameter of every model that `key` names a value: `accumulators.F` = 10 makes
/// `sm90.wgmma.e4m3` `sm90.wgmma.e4m3:F=10`. Throws `Error` for a parameter that names no models
/// and for a text that is none; whether such a model exists, who runs it knows.
void set_model_part(Parameters& parameters, const ParameterPart& part, std::string_view value);

/// Replaces every text of every parameter that names models by what `resolve` gives for it. Throws
/// what it throws, after the key.
void resolve_models(Parameters& parameters,
                    const std::function<std::string(std::string_view)>& resolve);

}  // namespace fp8lab
