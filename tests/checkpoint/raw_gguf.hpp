// SPDX-License-Identifier: Apache-2.0
// GGUF bytes put together by hand, right or wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fewbit {

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

// Every count and length can be overruled, to be wrong.
class RawGguf {
 public:
  explicit RawGguf(std::uint32_t version = 3) : version_(version) {}

  std::string length(std::uint64_t value) const {
    return little_endian(value, version_ == 1 ? 4 : 8);
  }
  std::string string(std::string_view text) const {
    return length(text.size()) + std::string(text);
  }

  // value: the bytes behind the type number.
  RawGguf& kv(std::string_view key, std::uint32_t kind, std::string_view value) {
    return kv_raw(string(key) + little_endian(kind, 4) + std::string(value));
  }
  RawGguf& kv_u32(std::string_view key, std::uint32_t value) {
    return kv(key, 4, little_endian(value, 4));
  }
  RawGguf& kv_string(std::string_view key, std::string_view value) {
    return kv(key, 8, string(value));
  }
  RawGguf& kv_raw(std::string_view bytes) {
    kvs_ += bytes;
    ++kv_count;
    return *this;
  }

  // dims: fastest first.
  RawGguf& tensor(std::string_view name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                  std::uint64_t offset) {
    std::string entry = string(name) + little_endian(dims.size(), 4);
    for (const std::uint64_t dim : dims) entry += length(dim);
    return tensor_raw(entry + little_endian(type, 4) + little_endian(offset, 8));
  }
  RawGguf& tensor_raw(std::string_view bytes) {
    tensors_ += bytes;
    ++tensor_count;
    return *this;
  }
  RawGguf& data(std::string_view bytes) {
    data_ += bytes;
    return *this;
  }

  std::string header() const {
    return "GGUF" + little_endian(version_, 4) + length(tensor_count) + length(kv_count) + kvs_ +
           tensors_;
  }
  std::string build(std::uint64_t alignment = 32) const {
    std::string file = header();
    if (!data_.empty()) file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data_;
  }

  std::uint64_t tensor_count = 0;
  std::uint64_t kv_count = 0;

 private:
  std::uint32_t version_;
  std::string kvs_;
  std::string tensors_;
  std::string data_;
};

}  // namespace fewbit
