#include "training/train/data.hpp"

#include <map>

#include "catch.hpp"
#include "io/temporary.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

TEST_CASE("synthetic language: a batch is a function of seed and index", "[train]") {
  const auto data = synthetic_language({}, 3);
  const Batch batch = data->batch(5, 4, 32);
  CHECK(batch.inputs == data->batch(5, 4, 32).inputs);
  CHECK(batch.targets == synthetic_language({}, 3)->batch(5, 4, 32).targets);
  CHECK(batch.inputs != data->batch(6, 4, 32).inputs);
  CHECK(batch.inputs != synthetic_language({}, 4)->batch(5, 4, 32).inputs);
  REQUIRE(batch.inputs.size() == 4 * 32);
  for (std::size_t t = 0; t + 1 < batch.inputs.size(); ++t)
    if (t % 32 != 31) CHECK(batch.targets[t] == batch.inputs[t + 1]);
}

TEST_CASE("synthetic language: frequencies fall, contexts repeat, segments are copied", "[train]") {
  const LanguageOptions options{.vocabulary = 128, .successors = 4};
  const auto data = synthetic_language(options, 1);
  const Batch batch = data->batch(0, 64, 128);
  std::vector<int> counts(128);
  std::map<std::int32_t, std::map<std::int32_t, int>> successors;
  for (std::size_t t = 0; t < batch.inputs.size(); ++t) {
    const std::int32_t token = batch.inputs[t];
    REQUIRE(token >= 0);
    REQUIRE(token < 128);
    ++counts[static_cast<std::size_t>(token)];
    ++successors[token][batch.targets[t]];
  }
  CHECK(counts[0] > 4 * counts[20]);
  // The four successors of the most frequent token take far more than an equal share.
  int seen = 0;
  std::vector<int> of_first;
  for (const auto& [token, count] : successors[0]) {
    seen += count;
    of_first.push_back(count);
  }
  std::sort(of_first.rbegin(), of_first.rend());
  CHECK(of_first[0] + of_first[1] + of_first[2] + of_first[3] > seen / 2);
  // Without copying, twelve tokens in a row hardly ever come twice in a sequence.
  const auto repeats = [](const Batch& b) {
    int found = 0;
    for (std::size_t s = 0; s < 64; ++s) {
      std::map<std::vector<std::int32_t>, int> runs;
      for (std::size_t t = 0; t + 12 <= 128; ++t) {
        const auto from = b.inputs.begin() + static_cast<std::ptrdiff_t>(s * 128 + t);
        found += runs[{from, from + 12}]++ > 0 ? 1 : 0;
      }
    }
    return found;
  };
  LanguageOptions plain = options;
  plain.copy_share = 0.0;
  CHECK(repeats(batch) > 10 * (1 + repeats(synthetic_language(plain, 1)->batch(0, 64, 128))));
}

TEST_CASE("synthetic language: copies are as long and as frequent as asked for", "[train]") {
  // Tokens hardly repeat by chance here: a token that follows its predecessor's copy is a copy.
  const LanguageOptions options{.vocabulary = 50000,
                                .zipf_exponent = 0.01,
                                .markov_share = 0.0,
                                .copy_share = 0.1,
                                .copy_length = 16};
  const Batch batch = synthetic_language(options, 1)->batch(0, 64, 512);
  std::map<std::int64_t, int> lengths;
  std::int64_t copied = 0;
  for (std::int64_t s = 0; s < 64; ++s) {
    std::map<std::int32_t, std::int64_t> last;
    std::int64_t run = 0;
    std::int64_t from = -2;
    for (std::int64_t t = 0; t < 512; ++t) {
      const std::int32_t token = batch.inputs[static_cast<std::size_t>(s * 512 + t)];
      const auto seen = last.find(token);
      const std::int64_t source = seen == last.end() ? -1 : seen->second;
      copied += source >= 0 ? 1 : 0;
      if (source >= 0 && source == from + 1) {
        ++run;
      } else {
        if (run > 0) ++lengths[run + 1];
        run = 0;
      }
      from = source >= 0 ? source : -2;
      if (seen == last.end()) last[token] = t;
    }
  }
  // Two copies may follow each other without a seam, and a copy may be of copies.
  int whole = 0;
  int all = 0;
  for (const auto& [length, count] : lengths) {
    all += count;
    whole += length == 16 ? count : 0;
  }
  CHECK(whole > all / 2);
  const double share = static_cast<double>(copied) / (64.0 * 512.0);
  CHECK(share > 0.06);
  CHECK(share < 0.1);
}

TEST_CASE("text: bytes of a file, around its end", "[train]") {
  const TemporaryFolder folder("text");
  write_text(folder / "abc.txt", "abc");
  const auto data = text_file(folder / "abc.txt", 1);
  const Batch batch = data->batch(0, 3, 5);
  for (std::size_t t = 0; t < batch.inputs.size(); ++t)
    CHECK(batch.targets[t] == 'a' + (batch.inputs[t] - 'a' + 1) % 3);
  write_text(folder / "short.txt", "a");
  CHECK_THROWS_WITH(text_file(folder / "short.txt", 1), contains("short.txt"));
  CHECK_THROWS_WITH(text_file(folder / "none.txt", 1), contains("none.txt"));
  CHECK(text_file(folder / "abc.txt", 2)->identity() != data->identity());
}

TEST_CASE("synthetic language: options that make no sense are refused", "[train]") {
  CHECK_THROWS_WITH(synthetic_language({.vocabulary = 1}, 1), contains("vocabulary"));
  CHECK_THROWS_WITH(synthetic_language({.markov_share = 1.5}, 1), contains("markov_share"));
  CHECK_THROWS_WITH(synthetic_language({.copy_share = -0.5}, 1), contains("copy_share"));
  CHECK_THROWS_WITH(synthetic_language({.successors = 0}, 1),
                    contains("successors: expected at least 1, got 0"));
  CHECK_THROWS_WITH(synthetic_language({.copy_length = 0}, 1),
                    contains("copy_length: expected at least 1, got 0"));
  CHECK_THROWS_WITH(synthetic_language({.markov_share = 1.0 + 1e-9}, 1), contains("markov_share"));
  CHECK_NOTHROW(synthetic_language({.vocabulary = 2, .successors = 1, .copy_length = 1}, 1));
  CHECK_NOTHROW(synthetic_language({.markov_share = 1.0}, 1));
  CHECK_NOTHROW(synthetic_language({.markov_share = 0.0, .copy_share = 0.0}, 1));
}
