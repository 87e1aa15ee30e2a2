// SPDX-License-Identifier: Apache-2.0
#include "moe/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "moe/activate.hpp"

namespace fewbit {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

double gated(const ActivationParams& params, double gate, double up) {
  return activate(params.kind, gate, up, activation_constants(params));
}

// Gate 9 is clamped to 7 and up -9 to -7 before the formula: 7 * sigmoid(1.702 * 7) * (-7 + 1).
TEST(Activation, SwigluoaiClampsBeforeTheFormula) {
  const ActivationParams params{
      .kind = Activation::swigluoai, .alpha = 1.702F, .beta = 1.0F, .limit = 7.0F};
  EXPECT_NEAR(gated(params, 9, -9), -41.99972, 5e-6);
  EXPECT_NEAR(activate(params.kind, 9.0F, -9.0F, activation_constants(params)), -41.99972F, 1e-5F);
}

TEST(Activation, PlainSwigluOfTheSameInputsDiffers) {
  EXPECT_NEAR(gated({.kind = Activation::silu}, 9, -9), -80.99, 1e-3);
}

TEST(Activation, NoLimitLeavesLargeInputsAlone) {
  const ActivationParams params{.kind = Activation::swigluoai, .alpha = 1.702F, .beta = 1.0F};
  EXPECT_NEAR(gated(params, 9, -9), 9 / (1 + std::exp(-1.702 * 9)) * -8, 1e-5);
}

TEST(Activation, LimitClampsGateOnlyFromAboveAndUpOnBothSides) {
  for (const Activation kind :
       {Activation::silu, Activation::swigluoai, Activation::gelu, Activation::gelu_tanh}) {
    const ActivationParams open{.kind = kind};
    const ActivationParams clamped{.kind = kind, .limit = 0.5F};
    EXPECT_EQ(gated(clamped, 3, 9), gated(open, 0.5, 0.5)) << static_cast<int>(kind);
    EXPECT_EQ(gated(clamped, -3, -9), gated(open, -3, -0.5)) << static_cast<int>(kind);
  }
}

// Values from tables of the functions, rounded to ten digits.
TEST(Activation, FormulasGiveTabulatedValues) {
  EXPECT_NEAR(sigmoid(1.0), 0.7310585786, 1e-10);
  EXPECT_NEAR(silu(1.0), 0.7310585786, 1e-10);
  EXPECT_NEAR(silu(-2.0), -0.2384058440, 1e-10);
  EXPECT_NEAR(gelu(1.0), 0.8413447461, 1e-10);
  EXPECT_NEAR(gelu(-1.0), -0.1586552539, 1e-10);
  EXPECT_NEAR(gelu_tanh(1.0), 0.8411919906, 1e-10);
  EXPECT_NEAR(gelu_tanh(-1.0), -0.1588080094, 1e-10);
  EXPECT_EQ(relu2(-3.0), 0.0);
  EXPECT_EQ(relu2(3.0), 9.0);
}

TEST(Activation, GateAndUpAreNotInterchangeable) {
  EXPECT_NEAR(gated({.kind = Activation::silu}, 1, 10), 7.310585786, 1e-9);
  EXPECT_NEAR(gated({.kind = Activation::silu}, 10, 1), 9.999546021, 1e-9);
}

TEST(Activation, Relu2HasNoGateAndNoClamp) {
  EXPECT_EQ(gated({.kind = Activation::relu2}, 100, 3), 9);
  EXPECT_EQ(gated({.kind = Activation::relu2, .limit = 1.0F}, 100, 3), 9);
}

TEST(Activation, ExtremeInputsStayDefined) {
  EXPECT_EQ(silu(-1000.0F), 0.0F);
  EXPECT_EQ(silu(1000.0F), 1000.0F);
  EXPECT_EQ(gelu(-100.0), 0.0);
  EXPECT_EQ(sigmoid(-infinity), 0.0);
  EXPECT_TRUE(std::isnan(relu2(std::nan(""))));
  EXPECT_TRUE(std::isnan(clamp_gate(std::nan(""), 1.0)));
  EXPECT_TRUE(std::isnan(clamp_up(std::nan(""), 1.0)));
}

}  // namespace
}  // namespace fewbit
