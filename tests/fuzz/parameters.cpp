#include "lab/experiment/parameters.hpp"

#include "target.hpp"

using namespace fp8lab;

void parse(std::span<const std::uint8_t> input) {
  Parameters parameters = Parameters::from_toml(text_of(input), false);
  const Parameters before = parameters;
  for (const auto& [key, value] : before.values()) {
    const std::string text = parameters.to_toml(key);
    parameters.set(key + "=" + text);
    expect(parameters.to_toml(key) == text);
  }
}
