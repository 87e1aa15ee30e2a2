// SPDX-License-Identifier: Apache-2.0
#include "prepared/content_hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>
#if defined(FEWBIT_XXHASH_DISPATCHES)
#include <xxh_x86dispatch.h>  // puts its functions in place of xxhash.h's
#endif

#include <algorithm>

#include "checkpoint/mapped_file.hpp"

namespace fewbit {
namespace {

constexpr std::size_t piece_bytes = std::size_t{4} << 20;

std::string hex(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

XXH3_state_t* state_of(void* state) { return static_cast<XXH3_state_t*>(state); }

}  // namespace

std::uint64_t hash_on(std::uint64_t before, std::span<const std::byte> bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

std::string hash_bytes(std::span<const std::byte> bytes) {
  return hex(XXH3_128bits(bytes.data(), bytes.size()));
}

Result<ContentHash> ContentHash::create() {
  std::unique_ptr<void, Free> state(XXH3_createState());
  if (state == nullptr || XXH3_128bits_reset(state_of(state.get())) == XXH_ERROR) {
    return Error{ErrorCode::limit, "no memory for a hash", {}};
  }
  return ContentHash(std::move(state));
}

void ContentHash::Free::operator()(void* state) const { XXH3_freeState(state_of(state)); }

void ContentHash::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_of(state_.get()), bytes.data(), bytes.size());
}

std::string ContentHash::text() const { return hex(XXH3_128bits_digest(state_of(state_.get()))); }

Result<std::string> hash_file(const std::filesystem::path& path,
                              const std::function<bool(std::uint64_t)>& read) {
  FEWBIT_TRY(const auto file, MappedFile::open(path));
  FEWBIT_TRY(ContentHash hash, ContentHash::create());
  const auto bytes = file->bytes();
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    const auto piece = bytes.subspan(at, std::min(piece_bytes, bytes.size() - at));
    hash.add(piece);
    file->release(at, piece.size());
    if (read && !read(piece.size())) {
      return Error{ErrorCode::cancelled,
                   fmt::format("stopped after {} of {} bytes", at + piece.size(), bytes.size()),
                   path.string()};
    }
  }
  return hash.text();
}

}  // namespace fewbit
