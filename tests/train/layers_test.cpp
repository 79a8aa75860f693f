#include <cmath>

#include "catch.hpp"
#include "fp8lab/linear/linear.hpp"
#include "train/gradient_check.hpp"
#include "training/train/activation.hpp"
#include "training/train/attention.hpp"
#include "training/train/cross_entropy.hpp"
#include "training/train/embedding.hpp"
#include "training/train/norm.hpp"

using namespace fp8lab;
using namespace fp8lab::train;

namespace {

const PassContext kOneThread{};

}  // namespace

TEST_CASE("linear layer: gradients are those of differences", "[train]") {
  Linear<double> layer("linear", 5, 7, fp32_recipe());
  layer.weight().value = random_values("weight", 35);
  Matrix<double> x = random_matrix("x", 6, 5);
  const Matrix<double> c = random_matrix("c", 6, 7);
  const auto loss = [&] { return weighted(layer.forward(x, kOneThread), c); };
  (void)loss();
  const Matrix<double> dx = layer.backward(c, kOneThread);
  const std::vector<double> dw = layer.weight().gradient;
  check_gradient("dX", loss, x.values, dx.values);
  check_gradient("dW", loss, layer.weight().value, dw);
}

TEST_CASE("norms: gradients are those of differences", "[train]") {
  const NormKind kind = GENERATE(NormKind::layer, NormKind::rms);
  Norm<double> norm("norm", kind, 11);
  for (Parameter<double>* p : norm.parameters()) p->value = random_values(p->name, 11);
  Matrix<double> x = random_matrix("x", 3, 11, 2.0);
  for (double& v : x.values) v += 0.7;
  const Matrix<double> c = random_matrix("c", 3, 11);
  const auto loss = [&] { return weighted(norm.forward(x, kOneThread), c); };
  (void)loss();
  const Matrix<double> dx = norm.backward(c, kOneThread);
  std::vector<std::vector<double>> gradients;
  for (Parameter<double>* p : norm.parameters()) gradients.push_back(p->gradient);
  check_gradient("dX", loss, x.values, dx.values);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    check_gradient(norm.parameters()[i]->name, loss, norm.parameters()[i]->value, gradients[i]);
}

TEST_CASE("causal attention: gradients are those of differences", "[train]") {
  CausalAttention<double> attention(6, 2);
  Matrix<double> qkv = random_matrix("qkv", 2 * 5, 18);
  const Matrix<double> c = random_matrix("c", 2 * 5, 6);
  const auto loss = [&] { return weighted(attention.forward(qkv, 5, kOneThread), c); };
  (void)loss();
  const Matrix<double> d_qkv = attention.backward(c, kOneThread);
  check_gradient("dQKV", loss, qkv.values, d_qkv.values);
  CHECK_THROWS_WITH(CausalAttention<double>(6, 4), contains("heads") && contains("4"));
}

TEST_CASE("causal attention looks at nothing later and at nothing in other sequences", "[train]") {
  CausalAttention<double> attention(4, 2);
  Matrix<double> qkv = random_matrix("qkv", 2 * 5, 12);
  const Matrix<double> before = attention.forward(qkv, 5, kOneThread);
  for (std::int64_t c = 0; c < 12; ++c) qkv.row(3)[c] += 1.0;
  const Matrix<double> after = attention.forward(qkv, 5, kOneThread);
  for (std::int64_t t = 0; t < 10; ++t) {
    INFO("token " << t);
    const bool same = std::equal(before.row(t), before.row(t) + 4, after.row(t));
    CHECK(same == (t != 3 && t != 4));
  }
}

TEST_CASE("activations: gradients are those of differences", "[train]") {
  const ActivationKind kind = GENERATE(ActivationKind::gelu, ActivationKind::swiglu);
  Activation<double> activation(kind);
  Matrix<double> x = random_matrix("x", 3, 4 * activation.inputs(), 1.5);
  const Matrix<double> c = random_matrix("c", 3, 4);
  const auto loss = [&] { return weighted(activation.forward(x, kOneThread), c); };
  (void)loss();
  const Matrix<double> dx = activation.backward(c, kOneThread);
  check_gradient("dX", loss, x.values, dx.values);
}

TEST_CASE("cross-entropy: gradients are those of differences", "[train]") {
  CrossEntropy<double> layer;
  Matrix<double> logits = random_matrix("logits", 4, 9, 2.0);
  const std::vector<std::int32_t> targets{8, 0, 3, 3};
  const auto loss = [&] { return layer.forward(logits, targets, kOneThread); };
  (void)loss();
  const Matrix<double> d = layer.backward(1.0, kOneThread);
  const Matrix<double> scaled = layer.backward(4.0, kOneThread);
  for (std::size_t i = 0; i < d.values.size(); ++i) CHECK(scaled.values[i] == 4.0 * d.values[i]);
  check_gradient("dLogits", loss, logits.values, d.values);
  CHECK_THROWS_WITH(layer.forward(logits, std::vector<std::int32_t>{8, 0, 3, 9}, kOneThread),
                    contains("vocabulary of 9"));
}

TEST_CASE("cross-entropy of equal logits is the logarithm of the vocabulary", "[train]") {
  CrossEntropy<float> layer;
  const std::vector<std::int32_t> targets{1, 2};
  CHECK(layer.forward(Matrix<float>(2, 256), targets, kOneThread) == std::log(256.0));
}

TEST_CASE("embedding: gradients are those of differences", "[train]") {
  Embedding<double> embedding("embedding", 5, 3, 4);
  for (Parameter<double>* p : embedding.parameters())
    p->value = random_values(p->name, p->value.size());
  const std::vector<std::int32_t> tokens{0, 2, 2, 4, 2, 1};
  const Matrix<double> c = random_matrix("c", 6, 4);
  const auto loss = [&] { return weighted(embedding.forward(tokens), c); };
  (void)loss();
  embedding.backward(c);
  for (Parameter<double>* p : embedding.parameters())
    check_gradient(p->name, loss, p->value, p->gradient);
}
