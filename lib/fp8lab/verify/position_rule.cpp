#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "fp8lab/verify/measure.hpp"

namespace fp8lab {
namespace {

using Source = std::function<std::int64_t(std::int64_t)>;

PositionRule listed_pairs(std::span<const std::int64_t> from, std::span<const std::int64_t> to) {
  constexpr int kListed = 5;
  std::map<std::int64_t, std::int64_t> pairs;
  std::string text;
  int listed = 0;
  for (std::size_t i = 0; i < from.size(); ++i) pairs[from[i]] = to[i];
  for (const auto& [own, source] : pairs) {
    if (own == source || listed == kListed) continue;
    text += fmt::format("{}{} (i = {})", listed == 0 ? "" : ", ", source, own);
    ++listed;
  }
  return {text + (listed == kListed ? " ..." : ""), [pairs](std::int64_t i) {
            const auto found = pairs.find(i);
            return found == pairs.end() ? i : found->second;
          }};
}

}  // namespace

PositionRule rule_of(std::span<const std::int64_t> from, std::span<const std::int64_t> to,
                     std::int64_t count) {
  const auto holds = [&](const Source& source) {
    for (std::size_t i = 0; i < from.size(); ++i)
      if (source(from[i]) != to[i]) return false;
    return true;
  };
  if (from.empty()) return listed_pairs(from, to);
  std::vector<PositionRule> rules;
  const std::int64_t first = from[0];
  const std::int64_t target = to[0];
  const std::int64_t by = target - first;
  rules.push_back({fmt::format("i {} {}", by < 0 ? '-' : '+', std::abs(by)),
                   [by](std::int64_t i) { return i + by; }});
  rules.push_back({fmt::format("{}, always", target), [target](std::int64_t) { return target; }});
  rules.push_back(
      {fmt::format("i {} {}, at least 0 and at most {}", by < 0 ? '-' : '+', std::abs(by),
                   count - 1),
       [by, count](std::int64_t i) { return std::clamp<std::int64_t>(i + by, 0, count - 1); }});
  for (std::size_t n = 0; n < from.size(); ++n) {
    const std::int64_t distance = to[n] - from[n];
    if (distance == 0) continue;
    rules.push_back({fmt::format("i {} {}, at least 0 and at most {}", distance < 0 ? '-' : '+',
                                 std::abs(distance), count - 1),
                     [distance, count](std::int64_t i) {
                       return std::clamp<std::int64_t>(i + distance, 0, count - 1);
                     }});
    rules.push_back(
        {fmt::format("(i {} {}) mod {}", distance < 0 ? '-' : '+', std::abs(distance), count),
         [distance, count](std::int64_t i) {
           return count == 0 ? i : ((i + distance) % count + count) % count;
         }});
    const std::int64_t mask = to[n] ^ from[n];
    rules.push_back({fmt::format("i xor {}", mask), [mask](std::int64_t i) { return i ^ mask; }});
    rules.push_back({fmt::format("i xor {}, where there is one", mask),
                     [mask, count](std::int64_t i) { return (i ^ mask) < count ? i ^ mask : i; }});
    if (rules.size() > 40) break;
  }
  for (std::int64_t n = 2; n <= 256; n *= 2) {
    rules.push_back({fmt::format("i / {}", n), [n](std::int64_t i) { return i / n; }});
    rules.push_back({fmt::format("i mod {}", n), [n](std::int64_t i) { return i % n; }});
    rules.push_back({fmt::format("{} i", n), [n](std::int64_t i) { return i * n; }});
    rules.push_back({fmt::format("i / {0} * {0}", n), [n](std::int64_t i) { return i / n * n; }});
    rules.push_back({fmt::format("i / {0} * {0} + {1}", n, n - 1),
                     [n](std::int64_t i) { return i / n * n + n - 1; }});
  }
  for (PositionRule& rule : rules)
    if (holds(rule.source)) return std::move(rule);
  return listed_pairs(from, to);
}

}  // namespace fp8lab
