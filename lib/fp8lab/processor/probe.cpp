#include "fp8lab/processor/probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>
#include <string>

#include "fp8lab/accumulate/accumulate.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/parallel.hpp"
#include "fp8lab/processor/probe_cases.hpp"

namespace fp8lab {
namespace {

/// The cases of one execution, several instructions in a row, and their outputs.
class Execution {
 public:
  explicit Execution(const ProbeRequest& request)
      : instruction_(*request.instruction),
        steps_(static_cast<std::size_t>(request.in_a_row)),
        terms_(static_cast<std::size_t>(instruction_.terms)),
        length_(steps_ * terms_),
        outputs_(static_cast<std::size_t>(instruction_.outputs)),
        own_(find_instruction_model(instruction_.model)),
        cases_(format(own_.a_format), request.seed),
        a_(outputs_ * length_),
        b_(a_.size()),
        starts_(outputs_),
        sums_(outputs_),
        step_a_(outputs_ * terms_),
        step_b_(step_a_.size()) {}

  [[nodiscard]] std::size_t outputs() const { return outputs_; }

  /// Executes cases `indices`, one an output; the last one is repeated where there are fewer.
  void run(std::span<const std::uint64_t> indices) {
    for (std::size_t i = 0; i < outputs_; ++i) {
      const std::uint64_t index = indices[std::min(i, indices.size() - 1)];
      starts_[i] = cases_.make(index, std::span(a_).subspan(i * length_, length_),
                               std::span(b_).subspan(i * length_, length_));
    }
    sums_ = starts_;
    for (std::size_t step = 0; step < steps_; ++step) {
      for (std::size_t i = 0; i < outputs_; ++i) {
        const std::size_t from = i * length_ + step * terms_;
        std::copy_n(a_.data() + from, terms_, step_a_.data() + i * terms_);
        std::copy_n(b_.data() + from, terms_, step_b_.data() + i * terms_);
      }
      instruction_.execute(step_a_.data(), step_b_.data(), sums_.data());
    }
  }

  [[nodiscard]] std::uint32_t output(std::size_t i) const { return sums_[i]; }
  [[nodiscard]] std::uint32_t modelled(std::size_t i, const AccumulatorModel& model) {
    const std::span<const Unpacked> values = unpack_table(own_.a_format);
    unpacked_a_.clear();
    unpacked_b_.clear();
    for (std::size_t k = i * length_; k < (i + 1) * length_; ++k) {
      unpacked_a_.push_back(values[a_[k]]);
      unpacked_b_.push_back(values[b_[k]]);
    }
    return std::bit_cast<std::uint32_t>(
        dot_product(model, unpacked_a_, unpacked_b_, std::bit_cast<float>(starts_[i])));
  }
  [[nodiscard]] VectorCase row(std::size_t i) const {
    const auto codes = [&](const std::vector<std::uint16_t>& all) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * length_);
      return std::vector<std::uint32_t>(first, first + static_cast<std::ptrdiff_t>(length_));
    };
    VectorCase one;
    one.a = codes(a_);
    one.b = codes(b_);
    one.c = starts_[i];
    one.d = sums_[i];
    return one;
  }

 private:
  const CpuInstruction& instruction_;
  std::size_t steps_;
  std::size_t terms_;
  std::size_t length_;
  std::size_t outputs_;
  const InstructionModel& own_;
  ProbeCases cases_;
  std::vector<std::uint16_t> a_, b_;
  std::vector<std::uint32_t> starts_, sums_;
  std::vector<std::uint16_t> step_a_, step_b_;
  std::vector<Unpacked> unpacked_a_, unpacked_b_;
};

bool same_bits(std::uint32_t x, std::uint32_t y) {
  const auto is_nan = [](std::uint32_t bits) { return (bits & 0x7fffffff) > 0x7f800000; };
  return x == y || (is_nan(x) && is_nan(y));
}

const InstructionModel& checked_model(const ProbeRequest& request) {
  require(request.instruction != nullptr, "instruction", "an instruction", "none");
  const CpuInstruction& instruction = *request.instruction;
  require(instruction.available(), "instruction", "one that this processor has",
          fmt::format("'{}'", instruction.name));
  require(request.in_a_row >= 1 && request.in_a_row <= 64, "in_a_row", "1 to 64", request.in_a_row);
  const InstructionModel& own = find_instruction_model(instruction.model);
  if (request.model == nullptr) return own;
  require(takes_formats(request.model->accumulator, own.a_format, own.b_format), "model",
          fmt::format("one that reads {}, the operands of {}", format(own.a_format).name,
                      instruction.name),
          fmt::format("'{}'", request.model->name));
  return *request.model;
}

}  // namespace

ProbeReport probe(const ProbeRequest& request) {
  const AccumulatorModel& model = checked_model(request).accumulator;
  const std::size_t outputs = Execution(request).outputs();
  const std::uint64_t executions = (request.count + outputs - 1) / outputs;
  // Differences are collected in the order of cases, some executions at a time.
  constexpr std::uint64_t kTogether = 1 << 14;
  constexpr std::uint64_t kPart = 64;
  ProbeReport report;
  report.outputs = executions * outputs;
  for (std::uint64_t done = 0; done < executions; done += kTogether) {
    const std::uint64_t now = std::min(kTogether, executions - done);
    const std::uint64_t parts = (now + kPart - 1) / kPart;
    std::vector<std::vector<ProbeDifference>> found(parts);
    parallel_for_with(
        static_cast<std::int64_t>(parts), request.threads, [&] { return Execution(request); },
        [&](Execution& execution, std::int64_t part) {
          const auto at = static_cast<std::uint64_t>(part);
          std::vector<std::uint64_t> indices(outputs);
          for (std::uint64_t e = at * kPart; e < std::min(now, (at + 1) * kPart); ++e) {
            for (std::size_t i = 0; i < outputs; ++i) indices[i] = (done + e) * outputs + i;
            execution.run(indices);
            for (std::size_t i = 0; i < outputs; ++i) {
              const std::uint32_t modelled = execution.modelled(i, model);
              if (!same_bits(execution.output(i), modelled))
                found[at].push_back({indices[i], execution.output(i), modelled});
            }
          }
        });
    for (const std::vector<ProbeDifference>& part : found) {
      report.differences += part.size();
      const std::size_t room = kMostShown - report.shown.size();
      report.shown.insert(report.shown.end(), part.begin(),
                          part.begin() + static_cast<std::ptrdiff_t>(std::min(room, part.size())));
    }
  }
  return report;
}

VectorFile probed_rows(const ProbeRequest& request, const ProbeReport& report, std::size_t rows) {
  checked_model(request);
  const InstructionModel& own = find_instruction_model(request.instruction->model);
  VectorFile file;
  file.model = own.name;
  file.a_format = own.a_format;
  file.b_format = own.b_format;
  file.terms = request.instruction->terms * request.in_a_row;
  file.any_nan = true;
  file.header = {{"instruction", std::string(request.instruction->name)},
                 {"in a row", fmt::format("{}", request.in_a_row)},
                 {"processor", processor_family()},
                 {"seed", fmt::format("{}", request.seed)}};
  std::vector<std::uint64_t> indices;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(rows, report.outputs); ++i)
    indices.push_back(i);
  const std::uint64_t first = indices.size();
  for (const ProbeDifference& one : report.shown)
    if (one.index >= first) indices.push_back(one.index);
  Execution execution(request);
  for (const std::uint64_t index : indices) {
    execution.run({&index, 1});
    file.cases.push_back(execution.row(0));
  }
  return file;
}

}  // namespace fp8lab
