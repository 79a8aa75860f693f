#include "lab/experiment/properties.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <optional>

#include "fp8lab/core/error.hpp"
#include "fp8lab/core/toml_text.hpp"

namespace fp8lab {

bool supports_mpi(std::string_view default_toml) {
  const toml::table document = parse_toml(default_toml, "default.toml");
  const toml::node* node = document.get(kMpiKey);
  if (node == nullptr) return false;
  const std::optional<bool> value = node->value_exact<bool>();
  if (!value) throw Error("default.toml: mpi", "true or false", "a value of another type");
  return *value;
}

}  // namespace fp8lab
