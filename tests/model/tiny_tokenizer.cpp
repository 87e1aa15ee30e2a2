// SPDX-License-Identifier: Apache-2.0
#include "model/tiny_tokenizer.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "model/tokenizer_bytes.hpp"
#include "model/utf8.hpp"

namespace fewbit::test {

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "fewbit_test_XXXXXX").string();
  path_ = ::mkdtemp(name.data()) == nullptr ? std::filesystem::path() : std::filesystem::path(name);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryFolder::write(const std::string& name,
                                             const std::string& content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
  return path_ / name;
}

Json parse_json(const std::string& text) {
  Result<Json> json = Json::parse(text, "test");
  return json ? *std::move(json) : Json();
}

TinyTokenizer::TinyTokenizer()
    : pre_tokenizer(parse_json(R"({"type":"ByteLevel","add_prefix_space":false})")),
      decoder(parse_json(R"({"type":"ByteLevel"})")) {
  added.push_back(parse_json(R"({"id":1000,"content":"<eos>","special":true})"));
  added.push_back(parse_json(R"({"id":1001,"content":"<tool>","special":false})"));
}

Json TinyTokenizer::json() const {
  Json vocab{Json::Object{}};
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_utf8(byte_spelling[static_cast<std::size_t>(byte)], spelled);
    vocab.set(spelled, Json(byte));
  }
  Json list{Json::Array{}};
  int id = 256;
  for (const auto& [left, right] : merges) {
    vocab.set(left + right, Json(id++));
    list.push_back(Json(Json::Array{Json(left), Json(right)}));
  }
  Json model;
  model.set("type", Json("BPE"));
  model.set("vocab", std::move(vocab));
  model.set("merges", std::move(list));
  Json root;
  root.set("added_tokens", Json(added));
  root.set("normalizer", normalizer);
  root.set("pre_tokenizer", pre_tokenizer);
  root.set("post_processor", post_processor);
  root.set("decoder", decoder);
  root.set("model", std::move(model));
  return root;
}

Json with_model_member(const TinyTokenizer& tokenizer, const std::string& key, Json value) {
  Json root = tokenizer.json();
  Json model = *root.find("model");
  model.set(key, std::move(value));
  root.set("model", std::move(model));
  return root;
}

}  // namespace fewbit::test
