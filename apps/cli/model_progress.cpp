#include "model_progress.hpp"
#include "say.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace fp8lab::cli {
namespace {

double megabytes(std::uint64_t bytes) { return static_cast<double>(bytes) / 1e6; }

}  // namespace

std::function<void(const RewriteProgress&)> ModelProgress::callback() {
  return [this](const RewriteProgress& progress) { show(progress); };
}

void ModelProgress::show(const RewriteProgress& progress) {
  const double fraction = progress.total == 0 ? 1.0
                                              : static_cast<double>(progress.done) /
                                                    static_cast<double>(progress.total);
  bar_.show(fraction, fmt::format(" {}", progress.shard));
  if (shard_ == progress.shard) return;
  shard_ = progress.shard;
  if (isatty(STDERR_FILENO) == 0)
    say(stderr, "{}: {:.0f} of {:.0f} MB\n", shard_, megabytes(progress.done),
        megabytes(progress.total));
}

void print_summary(const RewriteSummary& summary) {
  say("{:.1f} MB of tensors read, {:.1f} MB written", megabytes(summary.bytes_read),
      megabytes(summary.bytes_written));
  if (summary.resumed > 0) say(", {} shards of an earlier run", summary.resumed);
  fmt::print("\n");
  if (!summary.copied.empty())
    say("copied: {}\n", fmt::format("{}", fmt::join(summary.copied, ", ")));
  if (!summary.left.empty())
    say("not copied: {}\n", fmt::format("{}", fmt::join(summary.left, ", ")));
}

nlohmann::ordered_json to_json(const RewriteSummary& summary) {
  return {{"bytes_read", summary.bytes_read},
          {"bytes_written", summary.bytes_written},
          {"resumed_shards", summary.resumed},
          {"copied", summary.copied},
          {"not_copied", summary.left}};
}

}  // namespace fp8lab::cli
