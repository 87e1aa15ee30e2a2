// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <limits>
#include <string>

namespace fewbit {
namespace {

using testing::HasSubstr;

Error parse_error(std::string_view text, const JsonLimits& limits = {}) {
  const Result<Json> json = Json::parse(text, "t.json", limits);
  EXPECT_FALSE(json) << text.substr(0, 200);
  return json ? Error{} : json.error();
}

TEST(Json, CompactTextComesBackUnchanged) {
  for (const std::string text : {
           R"({"b":1,"a":[true,false,null,"x"],"c":{}})",
           R"([1.50,1e-05,-0.0,2E+3,123456789012345678901234567890])",
           R"([18446744073709551615,-9223372036854775808,9007199254740993])",
           R"("a\"b\\c\n\t\u0001")",
           "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"",
       }) {
    const Result<Json> json = Json::parse(text, "t");
    ASSERT_TRUE(json) << json.error().message();
    EXPECT_EQ(json->dump(), text);
    const Result<Json> again = Json::parse(json->dump(2), "t");
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(again->dump(), text);
  }
}

TEST(Json, IndentedLayout) {
  Json json;
  json.set("a", Json(1));
  json.set("b", Json(Json::Array{Json("x"), Json(true)}));
  json.set("c", Json(Json::Array{}));
  EXPECT_EQ(json.dump(2), "{\n  \"a\": 1,\n  \"b\": [\n    \"x\",\n    true\n  ],\n  \"c\": []\n}");
}

TEST(Json, IntegersAreExactAndKnowTheirRange) {
  const Result<Json> json =
      Json::parse("[18446744073709551615,-9223372036854775808,9007199254740993,3.0,-1]", "t");
  ASSERT_TRUE(json);
  const Json::Array& v = *json->as_array();
  EXPECT_EQ(v[0].as_uint64(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(v[0].as_int64(), std::nullopt);
  EXPECT_EQ(v[1].as_int64(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(v[1].as_uint64(), std::nullopt);
  EXPECT_EQ(v[2].as_int64(), 9007199254740993);
  EXPECT_EQ(v[3].as_int64(), std::nullopt);
  EXPECT_FALSE(v[3].is_integer());
  EXPECT_EQ(v[3].as_double(), 3.0);
  EXPECT_EQ(v[4].as_double(), -1.0);
}

TEST(Json, DoublesFromCodeReadBackAsDoubles) {
  EXPECT_EQ(Json(1.0).dump(), "1.0");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(1e300).dump(), "1e+300");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
}

TEST(JsonOfPython, ReadsNumbersThatAreNotFinite) {
  const std::string text =
      R"({"a": [0.0, Infinity], "NaN": -Infinity, "c": NaN, "d": [1e400,-1.5E+999], "e": "Infinity\"NaN"})";
  const Result<Json> json = Json::parse_python(text, "config.json");
  ASSERT_TRUE(json) << json.error().message();
  for (const Json* value :
       {&json->find("a")->as_array()->back(), json->find("NaN"), json->find("c"),
        &json->find("d")->as_array()->front(), &json->find("d")->as_array()->back()}) {
    EXPECT_TRUE(value->is_number());
    EXPECT_EQ(value->as_double(), std::nullopt);
    EXPECT_EQ(value->as_int64(), std::nullopt);
  }
  EXPECT_EQ(json->find("c")->number_text(), "NaN");
  EXPECT_EQ(*json->find("e")->as_string(), "Infinity\"NaN");
  // Strict text, which Python reads as the same numbers, NaN apart.
  EXPECT_EQ(json->dump(),
            R"({"a":[0.0,1e400],"NaN":-1e400,"c":null,"d":[1e400,-1.5E+999],"e":"Infinity\"NaN"})");
}

TEST(JsonOfPython, OtherNumbersStayWhatTheyAre) {
  const std::string tiny = "[0." + std::string(400, '0') + "1,1e-400,0e400,1e308,0." +
                           std::string(400, '0') + "1e401,1" + std::string(300, '0') + "]";
  const Result<Json> json = Json::parse_python(tiny, "t");
  ASSERT_TRUE(json) << json.error().message();
  for (const Json& value : *json->as_array()) EXPECT_TRUE(value.as_double().has_value());
  const Result<Json> huge = Json::parse_python("[1" + std::string(400, '0') + "]", "t");
  ASSERT_TRUE(huge) << huge.error().message();
  EXPECT_EQ(huge->as_array()->front().as_double(), std::nullopt);
}

TEST(JsonOfPython, AllElseIsAsStrict) {
  for (const std::string text : {"{NaN: 1}",
                                 "[NaN",
                                 "[NaNs]",
                                 "[-NaN]",
                                 "[+Infinity]",
                                 "[- Infinity]",
                                 "[1Infinity]",
                                 "[nan]",
                                 "[Infinity1]",
                                 "[01e400]",
                                 "[1.e400]",
                                 "[.5]",
                                 "[1e]",
                                 "[1e400e1]",
                                 "{\"a\":1,\"a\":NaN}",
                                 "[\"NaN]",
                                 "",
                                 "NaN NaN",
                                 "[1,,NaN]",
                                 "\"\\"}) {
    EXPECT_FALSE(Json::parse_python(text, "t")) << text;
  }
  for (const std::string text : {"[Infinity]", "[-Infinity]", "[NaN]", "[1e400]", "[-1e400]"}) {
    EXPECT_FALSE(Json::parse(text, "t")) << text;
    EXPECT_TRUE(Json::parse_python(text, "t")) << text;
  }
  const Result<Json> late = Json::parse_python("[Infinity, oops]", "t");
  ASSERT_FALSE(late);
  EXPECT_THAT(late.error().message(), HasSubstr("byte 12"));
}

TEST(Json, NumbersDoNotDependOnTheLocale) {
  const std::string before = std::setlocale(LC_NUMERIC, nullptr);
  const bool comma = std::setlocale(LC_NUMERIC, "de_DE.UTF-8") != nullptr;
  const Result<Json> json = Json::parse("[0.5]", "t");
  std::setlocale(LC_NUMERIC, before.c_str());
  if (!comma) GTEST_SKIP() << "no locale de_DE.UTF-8 here";
  ASSERT_TRUE(json);
  EXPECT_EQ(json->dump(), "[0.5]");
  EXPECT_EQ(json->as_array()->front().as_double(), 0.5);
}

TEST(Json, DuplicateKeysAreRefusedAtEveryLevel) {
  EXPECT_EQ(parse_error(R"({"a":1,"b":2,"a":3})").message(),
            "t.json: byte 16: duplicate key \"a\", first at byte 4");
  EXPECT_THAT(parse_error(R"([{"x":{"k":1,"k":1}}])").what, HasSubstr("duplicate key \"k\""));
  // Equal after unescaping.
  EXPECT_THAT(parse_error(R"({"a":1,"\u0061":2})").what, HasSubstr("duplicate key \"a\""));
  EXPECT_TRUE(Json::parse(R"({"a":{"a":[{"a":1},{"a":2}]}})", "t"));
}

TEST(Json, InvalidUtf8IsRefused) {
  for (const std::string bytes :
       {"\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82"}) {
    const Error error = parse_error("[\"" + bytes + "\"]");
    EXPECT_EQ(error.code, ErrorCode::corrupt);
    EXPECT_THAT(error.what, HasSubstr("byte "));
    EXPECT_THAT(error.what, HasSubstr("UTF-8"));
  }
  EXPECT_EQ(parse_error(R"(["\ud800"])").code, ErrorCode::corrupt);
}

TEST(Json, OtherTextThanOneValueIsRefused) {
  for (const std::string_view text :
       {"",           " ",      "{",       "[1,]",    "{\"a\":1,}",
        "{a:1}",      "[1] x",  "[1][2]",  "// c\n1", "NaN",
        "[Infinity]", "01",     "1.",      ".5",      "+1",
        "'a'",        "\"\n\"", "[1e999]", "tru",     "\xef\xbb\xbf{}"}) {
    EXPECT_EQ(parse_error(text).code, ErrorCode::corrupt) << text;
  }
  EXPECT_THAT(parse_error(std::string_view("{}\0x", 4)).what, HasSubstr("byte 2: a zero byte"));
  EXPECT_THAT(parse_error("[1] x").what, HasSubstr("byte 5"));
}

TEST(Json, ErrorsStayShortOnLongTokens) {
  EXPECT_LT(parse_error("[\"" + std::string(1 << 20, 'a')).what.size(), 300U);
  EXPECT_LT(parse_error("{\"" + std::string(1 << 20, 'a') + "\":1 1}").what.size(), 300U);
}

TEST(Json, DepthIsLimitedNotRecursed) {
  const auto nested = [](std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(Json::parse(nested(64), "t"));
  EXPECT_EQ(parse_error(nested(65)).message(),
            "t.json: byte 65: nested deeper than 64 levels, the limit");
  EXPECT_EQ(parse_error(std::string(1'000'000, '[')).code, ErrorCode::limit);
  std::string objects;
  for (int i = 0; i < 10'000; ++i) objects += "{\"a\":";
  EXPECT_EQ(parse_error(objects).code, ErrorCode::limit);
}

TEST(Json, SizeAndNumberOfValuesAreLimited) {
  EXPECT_THAT(parse_error("[1,2,3]", {.max_bytes = 6}).what,
              HasSubstr("7 bytes of JSON, the limit is 6"));
  EXPECT_TRUE(Json::parse("[1,2,3]", "t", {.max_values = 4}));
  EXPECT_THAT(parse_error("[1,2,3]", {.max_values = 3}).what, HasSubstr("more than 3 values"));
}

TEST(Json, ValuesOfCodeAlwaysDumpAsValidJson) {
  Json json;
  json.set("bad\xff", Json(std::string("\xe2\x82 \x01\x7f")));
  const Result<Json> back = Json::parse(json.dump(), "t");
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(json.dump(), "{\"bad\xef\xbf\xbd\":\"\xef\xbf\xbd\xef\xbf\xbd \\u0001\x7f\"}");
}

TEST(Json, SetReplacesAndKeepsTheOrder) {
  Json json;
  json.set("z", Json(1));
  json.set("a", Json(2));
  json.set("z", Json(3));
  EXPECT_EQ(json.dump(), R"({"z":3,"a":2})");
  EXPECT_EQ(json.find("a")->as_int64(), 2);
  EXPECT_EQ(json.find("q"), nullptr);
  EXPECT_EQ(Json(1).find("a"), nullptr);
}

// As parse() reports them, though no member is kept.
TEST(Json, MembersAreHandedOverOneByOne) {
  std::vector<std::string> seen;
  const auto take = [&](const Json::Member& member) -> Result<void> {
    if (member.second.is_null()) return Error{ErrorCode::corrupt, "null", member.first};
    if (member.second.is_bool()) return Error{ErrorCode::limit, "enough", member.first};
    seen.push_back(member.first + member.second.dump());
    return {};
  };
  const auto parse = [&](std::string_view text) {
    seen.clear();
    return Json::parse_members(text, "f", {.max_values = 3}, take);
  };
  const auto root = parse(R"({"a":[1,2],"b":{"c":[]},"d":"x"})");
  ASSERT_TRUE(root) << root.error().message();
  EXPECT_EQ(root->as_object()->size(), 0U);
  EXPECT_EQ(seen, (std::vector<std::string>{"a[1,2]", "b{\"c\":[]}", "d\"x\""}));
  EXPECT_TRUE(parse("[1]")->is_array());
  EXPECT_EQ(parse(R"({"a":1,"b":[1,2,3]})").error().message(),
            "f: byte 18: more than 3 values, the limit");
  EXPECT_EQ(parse(R"({"a":1,"b":2,"a":3})").error().message(),
            "f: byte 16: duplicate key \"a\", first at byte 4");
  EXPECT_EQ(parse(R"({"a":null,"b":2})").error().message(), "a: null");
  EXPECT_EQ(seen.size(), 0U);
  EXPECT_NE(parse(R"({"a":null,"b":2)").error().what.find("syntax error"), std::string::npos);
  EXPECT_EQ(parse(R"({"a":1,"b":true,}}}}})").error().message(), "b: enough");
}

}  // namespace
}  // namespace fewbit
