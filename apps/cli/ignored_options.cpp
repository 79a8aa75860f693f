#include "ignored_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fp8lab/core/error.hpp"

namespace fp8lab::cli {
namespace {

bool given(const Command& command, const std::string& name) {
  const Option* option = command.find_option(name);
  return option != nullptr && option->count() > 0;
}

std::string value_of(const Command& command, const std::string& name) {
  return given(command, name) ? command.find_option(name)->results().front() : "";
}

/// An option, and those of which one must be there too.
struct Belongs {
  std::string option;
  std::vector<std::string> to;
};

const std::vector<Belongs>& belongings() {
  static const std::vector<Belongs> kBelongings{
      {"--tiles-a", {"--scale-a"}},
      {"--tiles-b", {"--scale-b"}},
      {"--scale-layout-a", {"--scale-a"}},
      {"--scale-layout-b", {"--scale-b"}},
      {"--scale-format", {"--scale-a", "--scale-b", "--scale"}},
      {"--tiles", {"--scale"}},
      {"--scale", {"--cast"}},
      {"--scale-order", {"--scale-a", "--scale-b", "--recipe"}},
      {"--c-enters", {"--c"}},
      {"--split-cut", {"--split-k"}},
      {"--split-order", {"--split-k"}},
      {"--split-tile", {"--split-k"}},
      {"--ungrouped", {"--row-ends", "--row-indices", "--row-counts"}}};
  return kBelongings;
}

/// An option that only some values of another one read.
struct ReadBy {
  std::string option;
  std::string other;
  std::vector<std::string> values;
};

const std::vector<ReadBy>& readers() {
  static const std::vector<ReadBy> kReaders{
      {"--slope", "--activation", {"leaky_relu"}},
      {"--activation-ulps", "--activation", {"gelu", "gelu_tanh", "silu", "swiglu"}}};
  return kReaders;
}

}  // namespace

void require_no_ignored_options(const Command& command) {
  for (const Belongs& one : belongings()) {
    if (!given(command, one.option)) continue;
    const bool found =
        std::ranges::any_of(one.to, [&](const std::string& to) { return given(command, to); });
    require(found, one.option,
            fmt::format("also {}, without which it has no effect", fmt::join(one.to, " or ")),
            "it alone");
  }
  for (const ReadBy& one : readers()) {
    const std::string value = value_of(command, one.other);
    require(!given(command, one.option) || std::ranges::count(one.values, value) > 0, one.option,
            fmt::format("{} {}, without which it has no effect", one.other,
                        fmt::join(one.values, " or ")),
            value.empty() ? "it alone" : fmt::format("{} {}", one.other, value));
  }
}

void require_only(const Command& command, std::string_view beside,
                  std::span<const std::string_view> read) {
  for (const Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || option->get_positional() || name == beside) continue;
    require(std::ranges::count(read, name) > 0, name,
            fmt::format("no such option with {}, which does not use it", beside), "it");
  }
}

}  // namespace fp8lab::cli
