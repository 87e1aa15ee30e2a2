// SPDX-License-Identifier: Apache-2.0
#include "prepared/content_hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>
#if defined(FEWBIT_XXHASH_DISPATCHES)
#include <xxh_x86dispatch.h>  // puts its functions in place of xxhash.h's
#endif

#include <algorithm>
#include <memory>

#include "checkpoint/mapped_file.hpp"

namespace fewbit {
namespace {

constexpr std::size_t piece_bytes = std::size_t{4} << 20;

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

std::uint64_t hash_on(std::uint64_t before, std::span<const std::byte> bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

std::string hash_bytes(std::span<const std::byte> bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

Result<std::string> hash_file(const std::filesystem::path& path,
                              const std::function<bool(std::uint64_t)>& read) {
  FEWBIT_TRY(const auto file, MappedFile::open(path));
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  if (state == nullptr || XXH3_128bits_reset(state.get()) == XXH_ERROR) {
    return Error{ErrorCode::limit, "no memory for a hash", path.string()};
  }
  const auto bytes = file->bytes();
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    const auto piece = bytes.subspan(at, std::min(piece_bytes, bytes.size() - at));
    XXH3_128bits_update(state.get(), piece.data(), piece.size());
    file->release(at, piece.size());
    if (read && !read(piece.size())) {
      return Error{ErrorCode::cancelled,
                   fmt::format("stopped after {} of {} bytes", at + piece.size(), bytes.size()),
                   path.string()};
    }
  }
  return hex(XXH3_128bits_digest(state.get()));
}

}  // namespace fewbit
