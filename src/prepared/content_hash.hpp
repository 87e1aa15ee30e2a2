// SPDX-License-Identifier: Apache-2.0
// XXH3-128, as 32 hex digits, as xxh128sum prints it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "fewbit/result.hpp"

namespace fewbit {

// XXH3-64 of a run of bytes that goes on from others, whose hash is `before`; 0: from none.
std::uint64_t hash_on(std::uint64_t before, std::span<const std::byte> bytes);

std::string hash_bytes(std::span<const std::byte> bytes);
// Maps the file and lets its pages go as it reads. `read` is told the bytes of each piece; false:
// error cancelled. Errors: as MappedFile::open.
Result<std::string> hash_file(const std::filesystem::path& path,
                              const std::function<bool(std::uint64_t)>& read = {});

}  // namespace fewbit
