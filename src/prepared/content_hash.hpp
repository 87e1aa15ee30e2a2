// SPDX-License-Identifier: Apache-2.0
// XXH3-128, as 32 hex digits, as xxh128sum prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "fewbit/result.hpp"

namespace fewbit {

// XXH3-64 of a run of bytes that goes on from others, whose hash is `before`; 0: from none.
std::uint64_t hash_on(std::uint64_t before, std::span<const std::byte> bytes);

// Of bytes that come one after another.
class ContentHash {
 public:
  // Error limit: no memory.
  static Result<ContentHash> create();
  void add(std::span<const std::byte> bytes);
  std::string text() const;

 private:
  struct Free {
    void operator()(void* state) const;
  };
  explicit ContentHash(std::unique_ptr<void, Free> state) : state_(std::move(state)) {}
  std::unique_ptr<void, Free> state_;  // XXH3_state_t
};

std::string hash_bytes(std::span<const std::byte> bytes);
// Maps the file and lets its pages go as it reads. `read` is told the bytes of each piece; false:
// error cancelled. Errors: as MappedFile::open.
Result<std::string> hash_file(const std::filesystem::path& path,
                              const std::function<bool(std::uint64_t)>& read = {});

}  // namespace fewbit
