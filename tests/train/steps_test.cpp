// What Adam or a mean hides: each step of a trainer is looked at by itself.

#include <cmath>
#include <vector>

#include "catch.hpp"
#include "fp8lab/train/divergence.hpp"
#include "fp8lab/train/trainer.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

TEST_CASE("gradients above the limit are brought to its length, others stay", "[train]") {
  // Adam divides a common factor out again: gradients are compared, not weights.
  const auto clipped = [](double limit) {
    TrainerOptions options;
    options.model = TransformerShape{
        .vocabulary = 64, .length = 8, .width = 16, .layers = 1, .heads = 2, .hidden = 16};
    options.sequences = 1;
    options.length = 8;
    options.clip_norm = limit;
    Trainer trainer(options, synthetic_language({.vocabulary = 64}, 1));
    trainer.compute_gradients(0, {});
    const auto parameters = trainer.model().parameters();
    for (auto* p : parameters) std::fill(p->gradient.begin(), p->gradient.end(), 0.0F);
    // A norm of 5 over two tensors.
    parameters.front()->gradient.front() = 3.0F;
    parameters.back()->gradient.back() = -4.0F;
    CHECK(trainer.apply_gradients(0.0).gradient_norm == 5.0);
    return std::vector<float>{parameters.front()->gradient.front(),
                              parameters.back()->gradient.back()};
  };
  const std::vector<float> whole{3.0F, -4.0F};
  for (const double limit : {0.0, 5.0, 5.5, 50.0}) {  // 0: none
    INFO("limit " << limit);
    CHECK(clipped(limit) == whole);
  }
  CHECK(clipped(2.5) == std::vector<float>{1.5F, -2.0F});
  CHECK(clipped(4.0) == std::vector<float>{3.0F * 0.8F, -4.0F * 0.8F});
}

TEST_CASE("a mean of fewer losses than a window is no lowest one", "[train]") {
  DivergenceWatch watch({.window = 3, .rise = 1.0, .uniform_loss = 10.0});
  watch.observe(1.0);
  CHECK(watch.rise() == -9.0);
  watch.observe(4.0);  // 2.5 on average: below what knowing nothing gives, though above 1
  CHECK(watch.rise() == -7.5);
  watch.observe(7.0);  // the first full window
  CHECK(watch.rise() == 0.0);
  watch.observe(7.0);  // 6 against 4
  CHECK(watch.rise() == 2.0);
}

TEST_CASE("synthetic language: batches share no sequence", "[train]") {
  const auto data = synthetic_language({}, 3);
  constexpr std::int64_t kLength = 16;
  const Batch all = data->batch(0, 6, kLength);
  for (std::int64_t index = 0; index < 3; ++index) {
    const Batch two = data->batch(index, 2, kLength);
    const auto begin = static_cast<std::ptrdiff_t>(index * 2 * kLength);
    INFO("batch " << index);
    CHECK(two.inputs ==
          std::vector(all.inputs.begin() + begin, all.inputs.begin() + begin + 2 * kLength));
  }
}
