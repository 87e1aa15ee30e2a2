// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/mapped_file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string>

#include "checkpoint/file_descriptor.hpp"
#include "checkpoint/scratch_folder.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

std::string content_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

Error open_error(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  EXPECT_FALSE(file);
  return file ? Error{} : file.error();
}

TEST(MappedFile, HoldsTheContentEvenOfAnEmptyFile) {
  ScratchFolder folder;
  const auto full = MappedFile::open(folder.write("full", "some bytes"));
  ASSERT_TRUE(full);
  EXPECT_EQ(content_of(**full), "some bytes");
  const auto empty = MappedFile::open(folder.write("empty", ""));
  ASSERT_TRUE(empty);
  EXPECT_TRUE((*empty)->bytes().empty());
  (*empty)->release(0, 10);
}

TEST(MappedFile, IsFoundByAnAddressInItAsLongAsItIsOpen) {
  ScratchFolder folder;
  const auto path = folder.write("full", "some bytes");
  auto one = MappedFile::open(path);
  auto two = MappedFile::open(folder.write("other", "more"));
  ASSERT_TRUE(one && two);
  const std::byte* address = (*one)->bytes().data();
  EXPECT_STREQ(MappedFile::path_at(address), path.c_str());
  EXPECT_STREQ(MappedFile::path_at(address + 9), path.c_str());
  EXPECT_STREQ(MappedFile::path_at((*two)->bytes().data()), (folder / "other").c_str());
  (*one).reset();
  EXPECT_EQ(MappedFile::path_at(address), nullptr);
  EXPECT_EQ(MappedFile::path_at(nullptr), nullptr);
}

TEST(MappedFile, OnlyRegularFilesAreOpened) {
  ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(open_error(folder / "fifo").what, "expected a regular file, found a FIFO");
  EXPECT_EQ(open_error(folder.path()).what, "expected a regular file, found a directory");
  EXPECT_EQ(open_error("/dev/zero").what, "expected a regular file, found a device");
}

// Permissions do not apply to root.
class AsUser {
 public:
  AsUser() {
    constexpr uid_t nobody = 65534;
    if (root_) {
      EXPECT_EQ(::seteuid(nobody), 0);
    }
  }
  ~AsUser() {
    if (root_) {
      EXPECT_EQ(::seteuid(0), 0);
    }
  }

 private:
  bool root_ = ::geteuid() == 0;
};

TEST(MappedFile, ErrorsNameTheFileAndTheReason) {
  ScratchFolder folder;
  const Error absent = open_error(folder / "absent");
  EXPECT_EQ(absent.code, ErrorCode::not_found);
  EXPECT_EQ(absent.message(),
            (folder / "absent").string() + ": cannot open: No such file or directory (errno 2)");
  const auto path = folder.write("closed", "x");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0755));
  const AsUser user;
  EXPECT_EQ(open_error(path).code, ErrorCode::io);
  EXPECT_THAT(open_error(path).what, HasSubstr("Permission denied"));
}

// A replaced file keeps its old content for those who have it mapped.
TEST(MappedFile, SurvivesReplacementAndRemoval) {
  ScratchFolder folder;
  const auto path = folder.write("f", "old");
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  std::filesystem::rename(folder.write("new", "newer"), path);
  EXPECT_EQ(content_of(**file), "old");
  std::filesystem::remove(path);
  EXPECT_EQ(content_of(**file), "old");
}

TEST(MappedFile, ReleasedAndPrefetchedRangesKeepTheirContent) {
  ScratchFolder folder;
  std::string content(5 * 4096 + 123, '\0');
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 4096);
  const auto file = MappedFile::open(folder.write("f", content));
  ASSERT_TRUE(file);
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  struct Range {
    std::uint64_t offset, size;
  };
  for (const Range r : {Range{0, content.size()}, Range{1, 4096}, Range{4096, 4096}, Range{100, 10},
                        Range{20000, 1000}, Range{0, most}, Range{most, most}, Range{5000, 0}}) {
    const std::size_t begin = std::min<std::uint64_t>(r.offset, content.size());
    MappedFile::will_read(
        (*file)->bytes().subspan(begin, std::min<std::uint64_t>(r.size, content.size() - begin)));
    (*file)->release(r.offset, r.size);
    EXPECT_EQ(content_of(**file), content) << r.offset << " " << r.size;
  }
}

// Kilobytes of mapped files in this process's memory, wherever the files live; -1 when unknown.
long resident_file_kilobytes() {
  const std::string status = file_content("/proc/self/status");
  const std::size_t files = status.find("RssFile:");
  const std::size_t shared = status.find("RssShmem:");
  if (files == std::string::npos || shared == std::string::npos) return -1;
  return std::stol(status.substr(files + 8)) + std::stol(status.substr(shared + 9));
}

bool is_cached(const std::byte* page) {
  unsigned char there = 0;
  return ::mincore(const_cast<std::byte*>(page), 1, &there) == 0 && (there & 1U) != 0;
}

TEST(MappedFile, WhatWillBeReadIsFetchedWithoutWhatStandsAround) {
  constexpr std::size_t size = std::size_t{64} << 20;
  ScratchFolder folder;
  const auto path = folder.write("f", std::string(size, 'x'));
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::fsync(descriptor.get()), 0);
  ::posix_fadvise(descriptor.get(), 0, 0, POSIX_FADV_DONTNEED);
  const auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const std::byte* middle = (*file)->bytes().data() + size / 2;
  if (is_cached(middle) || is_cached(middle + size / 4)) {
    GTEST_SKIP() << "this file system keeps its files in memory";
  }
  MappedFile::will_read((*file)->bytes().subspan(size / 2 + 100, 8192));
  for (int i = 0; i < 2000 && !is_cached(middle + 8192); ++i) ::usleep(5000);
  EXPECT_TRUE(is_cached(middle) && is_cached(middle + 4096) && is_cached(middle + 8192));
  EXPECT_FALSE(is_cached(middle + 4 * 8192) || is_cached(middle - 4 * 8192));
}

TEST(MappedFile, ReleaseTakesPagesOutOfMemory) {
  constexpr std::size_t size = std::size_t{32} << 20;
  ScratchFolder folder;
  const auto file = MappedFile::open(folder.write("f", std::string(size, 'x')));
  ASSERT_TRUE(file);
  const long before = resident_file_kilobytes();
  if (before < 0) GTEST_SKIP() << "this system's /proc/self/status has no RssFile and RssShmem";
  std::size_t sum = 0;
  for (const std::byte b : (*file)->bytes()) sum += std::to_integer<std::size_t>(b);
  EXPECT_EQ(sum, size * 'x');
  EXPECT_GT(resident_file_kilobytes() - before, 30 << 10);
  (*file)->release(0, size);
  EXPECT_LT(resident_file_kilobytes() - before, 2 << 10);
}

}  // namespace
}  // namespace fewbit
