#include "fp8lab/vectors/recording.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>

#include "fp8lab/core/error.hpp"
#include "fp8lab/io/files.hpp"
#include "fp8lab/vectors/vector_files.hpp"

namespace fp8lab {
namespace {

const std::string kMagic = "# fp8lab recording 1";
constexpr std::array<CaseKind, 3> kKinds{CaseKind::random, CaseKind::adversarial,
                                         CaseKind::special};
constexpr std::size_t kMostCases = 10'000'000;
constexpr std::size_t kMostTerms = std::size_t{1} << 29;  // of all cases: 4 GiB of operands

class RecordingReader {
 public:
  RecordingReader(std::istream& in, std::string name, std::size_t lines)
      : in_(in), name_(std::move(name)), lines_(lines) {}

  VectorFile read() {
    next();  // the magic line, which the caller has seen
    while (next() && text_.starts_with('#')) {
      const std::size_t colon = text_.find(": ");
      if (colon == std::string::npos || colon < 3) continue;
      const std::string key = text_.substr(2, colon - 2);
      const auto [at, is_new] = file_.header.emplace(key, text_.substr(colon + 2));
      if (!is_new) fail(fmt::format("a second header line '# {}: ...'", key.substr(0, 40)));
    }
    const RecordingPlan plan = read_plan();
    file_.cases = planned_cases(plan);
    const std::uint64_t checksum = checksum_of_inputs(file_.cases);
    if (number("inputs", 16) != checksum)
      fail(
          fmt::format("the generator gives inputs that differ from the recorded ones: checksum "
                      "{:016x}, recorded {}",
                      checksum, file_.header["inputs"]));
    read_results();
    file_.model = plan.model;
    file_.a_format = plan.a_format;
    file_.b_format = plan.b_format;
    file_.terms = plan.terms;
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw Error(fmt::format("{}:{}: {}", name_, line_, reason));
  }

  bool next() {
    if (!std::getline(in_, text_)) return false;
    ++line_;
    if (in_.eof()) fail("truncated: the last line does not end in a newline");
    return true;
  }

  const std::string& field(const std::string& key) const {
    const auto found = file_.header.find(key);
    if (found == file_.header.end()) fail(fmt::format("missing header line '# {}: ...'", key));
    return found->second;
  }

  std::uint64_t parse(const std::string& text, const std::string& key, int base) const {
    std::uint64_t value = 0;
    const auto* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value, base);
    if (error != std::errc{} || stop != end || text.empty())
      fail(fmt::format("{}: expected a number in base {}, got '{}'", key, base, text));
    return value;
  }
  std::uint64_t number(const std::string& key, int base) const {
    return parse(field(key), key, base);
  }

  RecordingPlan read_plan() const {
    RecordingPlan plan;
    plan.model = field("model");
    std::istringstream formats(field("input"));
    std::string a;
    std::string b;
    formats >> a >> b;
    try {
      plan.a_format = find_format(a).id;
      plan.b_format = b.empty() ? plan.a_format : find_format(b).id;
      (void)find_instruction_model(plan.model);
    } catch (const Error& error) {
      fail(error.what());
    }
    const std::uint64_t terms = number("terms", 10);
    if (terms < 1 || terms > 1 << 15) fail(fmt::format("terms: expected 1 .. 2^15, got {}", terms));
    plan.terms = static_cast<int>(terms);
    plan.seed = number("seed", 10);
    for (const CaseKind kind : kKinds) {
      std::size_t& count = plan.counts[static_cast<std::size_t>(kind)];
      count = number(std::string(to_string(kind)), 10);
      if (count > kMostCases)
        fail(fmt::format("{}: expected at most {}, got {}", to_string(kind), kMostCases, count));
    }
    require_results(plan);
    return plan;
  }

  /// Before a small file can ask for the memory of a large one.
  void require_results(const RecordingPlan& plan) const {
    const std::size_t cases =
        std::accumulate(plan.counts.begin(), plan.counts.end(), std::size_t{});
    const std::size_t header = static_cast<std::size_t>(line_) - (in_ ? 1 : 0);
    if (cases > lines_ - header)
      fail(fmt::format("expected {} results, got {}", cases, lines_ - header));
    const auto terms = static_cast<std::size_t>(plan.terms);
    if (cases > kMostTerms / terms)
      fail(
          fmt::format("expected at most {} terms in all cases, got {}", kMostTerms, cases * terms));
  }

  void read_results() {
    std::size_t read = 0;
    bool more = in_.good();
    for (; more && read < file_.cases.size(); more = next()) {
      if (text_.size() != 8) fail(fmt::format("expected 8 hex digits, got '{}'", text_));
      file_.cases[read].d = static_cast<std::uint32_t>(parse(text_, "d", 16));
      file_.cases[read].line = line_;
      ++read;
    }
    if (more || read != file_.cases.size())
      fail(fmt::format("expected {} results, got {}", file_.cases.size(),
                       more ? "more" : fmt::format("{}", read)));
  }

  std::istream& in_;
  std::string name_;
  std::size_t lines_;  ///< of the whole file
  VectorFile file_;
  std::string text_;
  int line_ = 0;
};

}  // namespace

std::vector<VectorCase> planned_cases(const RecordingPlan& plan) {
  InstructionModel model = find_instruction_model(plan.model);
  model.a_format = plan.a_format;
  model.b_format = plan.b_format;
  const CaseGenerator generator(model, scales_of_cases(model), plan.terms, plan.seed);
  std::vector<VectorCase> cases;
  for (const CaseKind kind : kKinds)
    for (std::size_t i = 0; i < plan.counts[static_cast<std::size_t>(kind)]; ++i)
      cases.push_back(generator.make(kind, i));
  return cases;
}

std::uint64_t checksum_of_inputs(const std::vector<VectorCase>& cases) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto mix = [&hash](std::uint32_t word) {
    for (int byte = 0; byte < 4; ++byte)
      hash = (hash ^ ((word >> (8 * byte)) & 0xffu)) * 0x100000001b3u;
  };
  for (const VectorCase& one : cases) {
    for (const std::uint32_t code : one.a) mix(code);
    for (const std::uint32_t code : one.b) mix(code);
    mix(one.c);
  }
  return hash;
}

void write_recording(std::ostream& out, const RecordingPlan& plan,
                     const std::vector<VectorCase>& cases,
                     const std::map<std::string, std::string>& header) {
  const std::string_view a = format(plan.a_format).name;
  const std::string_view b = format(plan.b_format).name;
  fmt::print(out, "{}\n# model: {}\n# input: {}\n# terms: {}\n# seed: {}\n", kMagic, plan.model,
             a == b ? std::string(a) : fmt::format("{} {}", a, b), plan.terms, plan.seed);
  for (const CaseKind kind : kKinds)
    fmt::print(out, "# {}: {}\n", to_string(kind), plan.counts[static_cast<std::size_t>(kind)]);
  fmt::print(out, "# inputs: {:016x}\n", checksum_of_inputs(cases));
  for (const auto& [key, value] : header) fmt::print(out, "# {}: {}\n", key, value);
  for (const VectorCase& one : cases) fmt::print(out, "{:08x}\n", one.d);
}

VectorFile read_cases(const std::filesystem::path& path) {
  if (holds_arrays(path)) return load_vectors(path);
  std::string text = read_file(path);
  if (!text.starts_with(kMagic + "\n")) return parse_vectors(path, std::move(text));
  const std::size_t lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) +
                            (text.ends_with('\n') ? 0 : 1);
  std::istringstream in(std::move(text));
  return RecordingReader(in, path.string(), lines).read();
}

}  // namespace fp8lab
