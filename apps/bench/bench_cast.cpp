#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <memory>
#include <span>

#include "apps/bench/bench.hpp"
#include "apps/bench/cast_baselines.hpp"
#include "apps/bench/ceilings.hpp"
#include "apps/bench/conformance.hpp"
#include "apps/bench/copies.hpp"
#include "apps/bench/timed_rows.hpp"
#include "fp8lab/cast/cast.hpp"
#include "fp8lab/cast/encode.hpp"
#include "fp8lab/core/error.hpp"
#include "fp8lab/core/random.hpp"
#include "fp8lab/core/target.hpp"

namespace fp8lab::cli {
namespace {

using bench::CopyKind;

struct CastOptions {
  std::size_t mebi_elements = 64;
  int repetitions = 9;
  std::string clock = "wall";
  bool conformance = false;
  std::uint32_t share = 1;

  [[nodiscard]] Rounds rounds() const { return {repetitions, clock == "cpu"}; }
};

/// Memory that begins on 64 bytes, each part first touched by the thread that will use it.
template <typename T>
class Array {
 public:
  explicit Array(std::size_t count)
      : data_(static_cast<T*>(std::aligned_alloc(4096, count * sizeof(T)))), count_(count) {
    if (data_ == nullptr) throw Error("not enough memory for the benchmark");
  }
  [[nodiscard]] std::span<T> span() const { return {data_.get(), count_}; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t count_;
};

enum class Data { normal, half_nan, binary32_subnormals };

void fill(Data data, std::span<float> values) {
  const RandomStream stream(1, "bench cast");
  constexpr std::size_t kPeriod = 1 << 16;
  for (std::size_t i = 0; i < std::min(kPeriod, values.size()); ++i) {
    values[i] = static_cast<float>(stream.normal(i));
    if (data == Data::half_nan && stream.bits32(kPeriod + i) % 2 == 0)
      values[i] = std::numeric_limits<float>::quiet_NaN();
    if (data == Data::binary32_subnormals)
      values[i] = std::bit_cast<float>(stream.bits32(i) & 0x807fffffu);
  }
  for (std::size_t i = kPeriod; i < values.size(); ++i) values[i] = values[i - kPeriod];
}

/// Whether a sample of what is about to be timed has the reference's bits.
bool verify(std::span<const float> in, const EncodeOptions& options) {
  const std::size_t count = std::min<std::size_t>(in.size(), std::size_t{1} << 21);
  std::vector<std::uint8_t> codes(count);
  encode(in.first(count), codes, options);
  const Format& f = format(options.format);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t random = options.random ? options.random->bits32(i) : 0;
    if (codes[i] != encode(f, options.policy, in[i] * options.scale, random)) return false;
  }
  std::vector<float> back(count);
  decode(codes, back, {.format = f.id, .threads = options.threads});
  for (std::size_t i = 0; i < count; ++i)
    if (std::bit_cast<std::uint32_t>(back[i]) !=
        std::bit_cast<std::uint32_t>(static_cast<float>(decode(f, codes[i]))))
      return false;
  return true;
}

struct Case {
  std::string name;
  EncodeOptions options;
};

std::vector<Case> encode_cases(int threads) {
  std::vector<Case> cases;
  for (const FormatId id : {FormatId::e4m3fn, FormatId::e5m2})
    for (const CastProfile& profile : kCastProfiles)
      // Overflow by direction has no kernel: the scalar reference would take most of the time.
      if (profile.policy.overflow != OverflowPolicy::by_direction &&
          profile.policy.overflow != OverflowPolicy::canonical_nan)
        cases.push_back({fmt::format("encode {} {}", format(id).name, profile.name),
                         {.format = id, .policy = profile.policy, .threads = threads}});
  for (const FormatId id : {FormatId::e4m3fnuz, FormatId::e5m2fnuz, FormatId::e2m1})
    cases.push_back({fmt::format("encode {} ml_dtypes", format(id).name),
                     {.format = id, .policy = kMlDtypes, .threads = threads}});
  for (const RoundingMode mode :
       {RoundingMode::nearest_away, RoundingMode::toward_zero, RoundingMode::upward}) {
    EncodeOptions options{.threads = threads};
    options.policy.rounding = mode;
    cases.push_back({fmt::format("encode e4m3fn {}", to_string(mode)), options});
  }
  EncodeOptions options{.scale = 0.37f, .threads = threads};
  cases.push_back({"encode e4m3fn scale", options});
  options.statistics = GatherStatistics::amax;
  cases.push_back({"encode e4m3fn scale, amax", options});
  options.statistics = GatherStatistics::all;
  cases.push_back({"encode e4m3fn scale, all statistics", options});
  options.statistics = GatherStatistics::none;
  options.policy.rounding = RoundingMode::stochastic;
  options.random.emplace(1, "bench");
  cases.push_back({"encode e4m3fn scale, stochastic", options});
  return cases;
}

/// Elements whose five bytes each leave a sixth of the first-level cache free.
std::size_t elements_in_cache() {
  constexpr std::size_t kUnknown = 32768;
  const long bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  return (bytes > 0 ? static_cast<std::size_t>(bytes) : kUnknown) / 6 / 256 * 256;
}

/// The draws of stochastic rounding and nothing else: what it costs before the first cast.
TimedRow draws_row(std::size_t count, int threads) {
  return {"draws of stochastic rounding alone",
          [=] {
            constexpr std::size_t kChunk = 4096;
            const RandomStream stream(1, "bench");
#pragma omp parallel for num_threads(threads)
            for (std::size_t at = 0; at < count; at += kChunk) {
              std::array<std::uint32_t, kChunk> bits;
              draw_bits(stream, at, std::span(bits).first(std::min(kChunk, count - at)));
            }
          },
          0.0,
          0,
          {}};
}

/// The plain model: the scalar reference in a loop.
CastBaseline scalar_model(FormatId id) {
  return {"scalar reference in a loop", id, "nvidia_satfinite",
          [=](std::span<const float> in, std::span<std::uint8_t> out) {
            encode(in, out, {.format = id, .target = Target::scalar});
          }};
}

/// What one could use instead. It is much slower: on one thread and a part of the elements.
/// `verified` becomes false where a code is not ours.
nlohmann::json measure_baselines(const CastOptions& options, std::span<const float> in,
                                 std::span<std::uint8_t> out, bool& verified) {
  const std::size_t count = std::max<std::size_t>(in.size() / 16 / 64 * 64, 64);
  in = in.first(count);
  out = out.first(count);
  std::vector<TimedRow> rows{{"narrowing copy, plain",
                              [=] { bench::narrowing_copy(CopyKind::plain, in, out, 1); },
                              5.0,
                              0,
                              {}}};
  std::vector<CastBaseline> baselines{scalar_model(FormatId::e4m3fn), scalar_model(FormatId::e5m2)};
  std::ranges::move(cast_baselines(), std::back_inserter(baselines));
  for (const CastBaseline& baseline : baselines) {
    std::vector<std::uint8_t> ours(count);
    encode(in, ours,
           {.format = baseline.format, .policy = find_cast_profile(baseline.profile).policy});
    baseline.cast(in, out);
    verified = verified && std::ranges::equal(ours, out);
    rows.push_back(
        {fmt::format("{}, {} {}", baseline.name, format(baseline.format).name, baseline.profile),
         [=] { baseline.cast(in, out); },
         5.0,
         0,
         {}});
  }
  time_rows(rows, options.rounds(), 1);
  return report(rows, count);
}

/// In the first-level cache, through the public function.
nlohmann::json measure_in_cache(bool processor_time, bool& verified) {
  const std::size_t count = elements_in_cache();
  constexpr int kCalls = 1000;
  const Array<float> values(count);
  const Array<std::uint8_t> bytes(count);
  const std::span<float> in = values.span();
  const std::span<std::uint8_t> codes = bytes.span();
  fill(Data::normal, in);
  verified = verified && verify(in, {});
  const auto speed = [&](const std::function<void()>& call) {
    double best = 0.0;
    for (int repetition = 0; repetition < 75; ++repetition) {
      const double start = seconds_now(processor_time, 1);
      for (int i = 0; i < kCalls; ++i) call();
      const double elements = static_cast<double>(count) * kCalls;
      best = std::max(best, elements * 1e-9 / (seconds_now(processor_time, 1) - start));
    }
    return best;
  };
  // The clock may move: it is measured on both sides of what it scales.
  const double clock_before = bench::measure_clock();
  const double encoded = speed([&] { encode(in, codes); });
  const double clock = std::max(clock_before, bench::measure_clock());
  const double decoded = speed([&] { decode(codes, in); });
  return {{"elements", count},
          {"clock_ghz", clock},
          {"encode_gelements", encoded},
          {"encode_gelements_at_3ghz", encoded * 3.0 / clock},
          {"decode_gelements", decoded}};
}

nlohmann::json measure(const CastOptions& cast_options, int threads) {
  const std::size_t count = cast_options.mebi_elements << 20;
  require(count > 0, "--mebi", "a positive number", "0");
  const Array<float> in(count);
  const Array<std::uint8_t> out(count);
  fill(Data::normal, in.span());
  std::ranges::fill(out.span(), std::uint8_t{1});
  bool verified = true;
  std::vector<TimedRow> rows;
  for (const CopyKind kind : {CopyKind::plain, CopyKind::non_temporal, CopyKind::prefetched})
    rows.push_back({fmt::format("narrowing copy, {}", to_string(kind)),
                    [=, &in, &out] { bench::narrowing_copy(kind, in.span(), out.span(), threads); },
                    5.0,
                    0,
                    {}});
  for (const Case& one : encode_cases(threads)) {
    verified = verified && verify(in.span(), one.options);
    rows.push_back(
        {one.name, [one, &in, &out] { encode(in.span(), out.span(), one.options); }, 5.0, 0, {}});
  }
  rows.push_back(draws_row(count, threads));
  time_rows(rows, cast_options.rounds(), threads);
  nlohmann::json encodes = report(rows, count);

  rows.resize(1);
  for (const auto& [data, name] : {std::pair{Data::half_nan, "half of them NaN"},
                                   std::pair{Data::binary32_subnormals, "binary32 subnormals"}}) {
    fill(data, in.span());
    rows.resize(1);
    rows[0].seconds.clear();
    for (const float scale : {1.0f, 0.37f})
      rows.push_back(
          {fmt::format("encode e4m3fn scale {}, {}", scale, name),
           [=, &in, &out] { encode(in.span(), out.span(), {.scale = scale, .threads = threads}); },
           5.0,
           0,
           {}});
    time_rows(rows, cast_options.rounds(), threads);
    const nlohmann::json part = report(rows, count);
    encodes.insert(encodes.end(), part.begin() + 1, part.end());
  }

  fill(Data::normal, in.span());
  const nlohmann::json baselines = measure_baselines(cast_options, in.span(), out.span(), verified);
  rows.clear();
  const std::span<const std::uint8_t> codes = out.span();
  for (const CopyKind kind : {CopyKind::plain, CopyKind::non_temporal, CopyKind::prefetched})
    rows.push_back({fmt::format("widening copy, {}", to_string(kind)),
                    [=, &in] { bench::widening_copy(kind, codes, in.span(), threads); },
                    5.0,
                    1,
                    {}});
  for (const FormatId id :
       {FormatId::e4m3fn, FormatId::e5m2, FormatId::e4m3fnuz, FormatId::e5m2fnuz, FormatId::e2m1})
    rows.push_back({fmt::format("decode {}, inverse scale", format(id).name),
                    [=, &in] {
                      decode(codes, in.span(),
                             {.format = id, .inverse_scale = 0.37f, .threads = threads});
                    },
                    5.0,
                    1,
                    {}});
  time_rows(rows, cast_options.rounds(), threads);
  return {{"elements", count},
          {"repetitions", cast_options.repetitions},
          {"clock", cast_options.clock},
          {"encode", encodes},
          {"baselines", baselines},
          {"decode", report(rows, count)},
          {"in_cache", measure_in_cache(cast_options.clock == "cpu", verified)},
          {"verified", verified}};
}

void print_rows(const nlohmann::json& rows) {
  for (const nlohmann::json& row : rows)
    fmt::print("{:56} {:6.2f} {:6.2f} {:7.1f} {:6.1f}% {:7.3f} {:7.3f}\n",
               row["name"].get<std::string>(), row["gelements"].get<double>(),
               row["best_gelements"].get<double>(), row["gbs"].get<double>(),
               100.0 * row["spread"].get<double>(), row["ratio"].get<double>(),
               row["best_ratio"].get<double>());
}

void print(const nlohmann::json& result) {
  if (result.contains("conformance")) return print_conformance(result);
  fmt::print(
      "casts of {} elements, {} rounds, {} time; ratios to the plain narrowing copy and to the "
      "non-temporal widening copy of the same round\n{:56} {:>6} {:>6} {:>7} {:>7} {:>7} {:>7}\n",
      result["elements"].get<std::size_t>(), result["repetitions"].get<int>(),
      result["clock"].get<std::string>(), "", "Gel/s", "best", "GB/s", "spread", "ratio",
      "of best");
  print_rows(result["encode"]);
  print_rows(result["decode"]);
  fmt::print("alternatives, on one thread:\n");
  print_rows(result["baselines"]);
  const nlohmann::json& cache = result["in_cache"];
  fmt::print(
      "in the first-level cache, {} elements, 1 thread, {:.2f} GHz: E4M3 encode {:.2f} "
      "Gelem/s ({:.2f} at 3 GHz), decode {:.2f}\nverified: {}\n",
      cache["elements"].get<std::size_t>(), cache["clock_ghz"].get<double>(),
      cache["encode_gelements"].get<double>(), cache["encode_gelements_at_3ghz"].get<double>(),
      cache["decode_gelements"].get<double>(), result["verified"].get<bool>());
}

}  // namespace

Benchmark cast_benchmark() {
  auto cast_options = std::make_shared<CastOptions>();
  return {
      "cast", "Time encoding and decoding, and compare them with copies that move the same bytes",
      [cast_options](Command& command) {
        command.add_option("--mebi", cast_options->mebi_elements, "elements in 2^20")
            ->capture_default_str();
        command.add_option("--repetitions", cast_options->repetitions, "rounds")
            ->check(between(1, 1000))
            ->capture_default_str();
        add_clock(command, cast_options->clock);
        command.add_flag(
            "--conformance", cast_options->conformance,
            "instead of timing: compare casts with those of their systems, over all 2^32 inputs");
        command
            .add_option("--share", cast_options->share,
                        "with --conformance: over one in so many of them")
            ->check(between(1, 1 << 20))
            ->capture_default_str();
      },
      [cast_options](const BenchOptions& options) -> nlohmann::json {
        if (cast_options->conformance) return conformance(options.threads, cast_options->share);
        return measure(*cast_options, options.threads);
      },
      print};
}

}  // namespace fp8lab::cli
