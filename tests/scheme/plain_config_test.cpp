// SPDX-License-Identifier: Apache-2.0
#include "scheme/plain_config.hpp"

#include <gtest/gtest.h>

#include "scheme/config_places.hpp"

namespace fewbit {
namespace {

bool speaks_of_quantization(const Json& config) {
  for (const ConfigPlace& place : config_places(config)) {
    for (const auto& [name, value] : *place.object->as_object()) {
      if (quantization_key(name, value) != QuantizationKey::none) return true;
    }
  }
  return false;
}

TEST(PlainConfig, SaysNothingOfQuantizationAnywhere) {
  std::string deep = R"({"quant_method": "fp8"})";
  for (int i = 0; i < 40; ++i) deep = R"({"inner": )" + deep + "}";
  for (const std::string& text :
       {std::string(R"({"quantization_config": {"quant_method": "fp8"}})"),
        std::string(R"({"parts": [{"quantization_config": {"quant_method": "fp8"}}]})"),
        std::string(
            R"({"parts": [[1, {"LOAD_IN_4BIT": true}]], "text_config": {"quantize": "x"}})"),
        deep}) {
    const auto config = Json::parse(text, "config.json");
    ASSERT_TRUE(config) << config.error().message();
    EXPECT_FALSE(speaks_of_quantization(without_quantization(*config))) << text;
  }
}

TEST(PlainConfig, DropsMapsThatOneReaderTakesAndKeepsTheRest) {
  const auto config = Json::parse(
      R"({"quantization_config": {"hybrid_bit_map": {"a": 4}}, "hidden_size": 3, "ids": [1, {"a": []}]})",
      "config.json");
  const auto plain = Json::parse(R"({"hidden_size": 3, "ids": [1, {"a": []}]})", "config.json");
  ASSERT_TRUE(config && plain);
  EXPECT_EQ(without_quantization(*config).dump(), plain->dump());
}

}  // namespace
}  // namespace fewbit
