// SPDX-License-Identifier: MIT
// The production readers on real files, disk and tmpfs: same bytes as an ordinary stream.
#include "store/block_reader.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "store/files_testing.h"
#include "store/read_queue.h"

namespace moestro {
namespace {

constexpr uint64_t kFileBlock = 4096;

struct Place {
  ReaderKind kind;
  const char* parent;  // empty: the temporary directory
};

std::string NameOf(const testing::TestParamInfo<Place>& info) {
  return std::string(info.param.kind == ReaderKind::kUring ? "Uring" : "Pread") +
         (info.param.parent[0] == '\0' ? "Temp" : "Shm");
}

class Readers : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    const std::string parent = GetParam().parent;
    if (!parent.empty() && !std::filesystem::exists(parent)) GTEST_SKIP() << "no " << parent;
    dir_ = parent.empty() ? std::make_unique<TempDir>() : std::make_unique<TempDir>(parent);
    ASSERT_FALSE(dir_->path().empty());
  }
  std::unique_ptr<BlockReader> Open(const std::vector<std::string>& paths, unsigned depth = 8,
                                    uint64_t least_block = PageBytes()) {
    auto reader = OpenReader(
        {.kind = GetParam().kind, .queue_depth = depth, .threads = 3, .least_block = least_block},
        paths);
    if (!reader && reader.error().code == Errc::kUnsupported) return nullptr;
    EXPECT_TRUE(reader.has_value()) << reader.error().message;
    return reader ? *std::move(reader) : nullptr;
  }
  std::string Write(const std::string& name, std::span<const std::byte> bytes) {
    return dir_->Write(name, bytes);
  }
  void CompareWithStream(uint64_t least_block);

 private:
  std::unique_ptr<TempDir> dir_;
};

#define OPEN_OR_SKIP(name, ...)    \
  const auto name = (__VA_ARGS__); \
  if (!name) GTEST_SKIP() << "io_uring is not available here"

// Reads 300 extents of two files.
void Readers::CompareWithStream(uint64_t least_block) {
  const std::array sizes{700'001UL, 40UL * kFileBlock};
  std::vector<std::string> paths;
  for (size_t i = 0; i < sizes.size(); ++i) {
    paths.push_back(Write(std::to_string(i), RandomBytes(sizes[i], i)));
  }
  OPEN_OR_SKIP(reader, Open(paths, 8, least_block));
  EXPECT_GE(reader->block(), least_block);
  ReadQueue queue(*reader, paths, {.max_request = 64 * kKiB, .max_in_flight = 6});
  std::mt19937_64 random(5);
  std::map<uint64_t, std::pair<Extent, AlignedMemory>> asked;
  for (uint64_t tag = 0; tag < 300; ++tag) {
    Extent e{.file = static_cast<uint32_t>(random() % 2), .offset = 0, .length = 0};
    e.offset = random() % sizes[e.file];
    const uint64_t rest = sizes[e.file] - e.offset;
    e.length = tag % 10 == 0 ? rest : 1 + random() % std::min<uint64_t>(rest, 100'000);
    const auto& slot =
        asked
            .try_emplace(tag, e,
                         AlignedMemory(WindowCapacity(e.length, reader->block()), reader->block()))
            .first->second;
    queue.Enqueue({.from = e,
                   .landing = slot.second.span(),
                   .tag = tag,
                   .urgency = tag % 3 == 0 ? Urgency::kSpeculative : Urgency::kDemand});
  }
  std::vector<ExtentDone> done;
  for (bool is_polling = true; !queue.idle(); is_polling = !is_polling) {
    is_polling ? queue.Pump(done) : queue.Wait(done);
  }
  std::set<uint64_t> seen;
  for (const ExtentDone& d : done) {
    EXPECT_FALSE(d.error.has_value()) << d.error->message;
    EXPECT_TRUE(seen.insert(d.tag).second);
    const auto& [e, memory] = asked.at(d.tag);
    const auto landed = memory.span().subspan(e.offset % reader->block(), e.length);
    EXPECT_TRUE(std::ranges::equal(landed, Slurp(paths[e.file], e.offset, e.length))) << d.tag;
  }
  EXPECT_EQ(seen.size(), 300U);
}

TEST_P(Readers, RandomExtentsOfTwoFilesMatchAStream) { CompareWithStream(kFileBlock); }
TEST_P(Readers, TheSameInBlocksOf16KiB) { CompareWithStream(16 * kKiB); }
TEST_P(Readers, TheSameInBlocksOf64KiB) { CompareWithStream(64 * kKiB); }

TEST_P(Readers, ReadsPastTheEndAreShort) {
  const auto path = Write("short", RandomBytes(kFileBlock + 100, 1));
  OPEN_OR_SKIP(reader, Open({path}));
  const AlignedMemory memory(8 * kFileBlock);
  ASSERT_TRUE(reader->Submit(
      {.file = 0, .offset = 0, .to = memory.span().first(4 * kFileBlock), .tag = 1}));
  ASSERT_TRUE(reader->Submit({.file = 0,
                              .offset = 2 * kFileBlock,
                              .to = memory.span().subspan(4 * kFileBlock),
                              .tag = 2}));
  std::map<uint64_t, BlockDone> results;
  std::array<BlockDone, 4> done;
  while (const size_t n = reader->Wait(done)) {
    for (const BlockDone& d : std::span(done).first(n)) results[d.tag] = d;
  }
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[1].error, 0);
  EXPECT_EQ(results[1].bytes, kFileBlock + 100);
  EXPECT_EQ(results[2].error, 0);
  EXPECT_EQ(results[2].bytes, 0U);
}

TEST_P(Readers, FullQueueRefusesAndPollAloneMakesProgress) {
  const auto path = Write("file", RandomBytes(64 * kFileBlock, 1));
  OPEN_OR_SKIP(reader, Open({path}, 2));
  const AlignedMemory memory(2 * kFileBlock);
  const BlockRead read{.file = 0, .offset = 0, .to = memory.span().first(kFileBlock), .tag = 5};
  const BlockRead other{
      .file = 0, .offset = kFileBlock, .to = memory.span().subspan(kFileBlock), .tag = 6};
  EXPECT_TRUE(reader->Submit(read));
  EXPECT_TRUE(reader->Submit(other));
  EXPECT_FALSE(reader->Submit(read));
  std::array<BlockDone, 1> done;  // room for one of the two finished reads; the other stays
  size_t n = 0;
  while (n < 2) n += reader->Poll(done);
  EXPECT_TRUE(reader->Submit(read));
  EXPECT_EQ(reader->Wait(done), 1U);
  EXPECT_EQ(done[0].tag, 5U);
  EXPECT_EQ(reader->Wait(done), 0U);
  EXPECT_EQ(reader->Poll(done), 0U);
}

TEST_P(Readers, TruncatedWhileOpenIsACleanError) {
  const auto path = Write("cut", RandomBytes(64 * kFileBlock, 1));
  OPEN_OR_SKIP(reader, Open({path}));
  ReadQueue queue(*reader, {path}, {.max_request = 4 * kFileBlock});
  std::filesystem::resize_file(path, 10 * kFileBlock + 33);
  const AlignedMemory memory(33 * kFileBlock);
  queue.Enqueue({.from = {.file = 0, .offset = kFileBlock + 1, .length = 30 * kFileBlock},
                 .landing = memory.span(),
                 .tag = 1});
  std::vector<ExtentDone> done;
  while (!queue.idle()) queue.Wait(done);
  ASSERT_EQ(done.size(), 1U);
  ASSERT_TRUE(done[0].error.has_value());
  EXPECT_EQ(done[0].error->code, Errc::kIo);
  EXPECT_TRUE(done[0].error->message.starts_with(path + " ends at byte "))
      << done[0].error->message;
}

TEST_P(Readers, DestroyedWithReadsInFlight) {
  const auto path = Write("file", RandomBytes(256 * kFileBlock, 1));
  for (int round = 0; round < 10; ++round) {
    OPEN_OR_SKIP(reader, Open({path}, 16));
    const AlignedMemory memory(256 * kFileBlock);
    ReadQueue queue(*reader, {path}, {.max_request = 16 * kFileBlock});
    queue.Enqueue({.from = {.file = 0, .offset = 0, .length = 256 * kFileBlock},
                   .landing = memory.span(),
                   .tag = 1});
    std::vector<ExtentDone> done;
    if (round % 2 == 0) queue.Pump(done);
  }  // destroys the queue, then its memory, then the reader
}

TEST_P(Readers, DestroyedAloneWithReadsInFlight) {
  const auto path = Write("file", RandomBytes(64 * kFileBlock, 1));
  const AlignedMemory memory(64 * kFileBlock);  // outlives the reader
  OPEN_OR_SKIP(reader, Open({path}));
  EXPECT_TRUE(reader->Submit({.file = 0, .offset = 0, .to = memory.span(), .tag = 1}));
}

TEST_P(Readers, MissingFileNamesPathAndCause) {
  OPEN_OR_SKIP(probe, Open({}));
  const auto reader = OpenReader({.kind = GetParam().kind}, {"/no/such/file.gguf"});
  ASSERT_FALSE(reader.has_value());
  EXPECT_EQ(reader.error().code, Errc::kIo);
  EXPECT_EQ(reader.error().message, "cannot open /no/such/file.gguf: No such file or directory");
}

INSTANTIATE_TEST_SUITE_P(Store, Readers,
                         testing::Values(Place{ReaderKind::kUring, ""},
                                         Place{ReaderKind::kUring, "/dev/shm"},
                                         Place{ReaderKind::kPread, ""},
                                         Place{ReaderKind::kPread, "/dev/shm"}),
                         NameOf);

TEST(OpenReader, AutoAlwaysFindsOne) {
  const TempDir dir;
  const auto path = dir.Write("file", RandomBytes(100, 1));
  const auto reader = OpenReader({}, {path});
  ASSERT_TRUE(reader.has_value()) << reader.error().message;
  EXPECT_TRUE((*reader)->description().starts_with("io_uring, ") ||
              (*reader)->description().starts_with("pread x4, "));
}

// Refuses io_uring to the calling thread and its children for good, as container runtimes do.
bool ForbidUring() {
  std::array<sock_filter, 4> program{
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, __NR_io_uring_setup},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

TEST(OpenReader, FallsBackWhereUringIsForbidden) {
  const TempDir dir;
  const auto path = dir.Write("file", RandomBytes(100, 1));
  std::thread([&] {
    if (!ForbidUring()) GTEST_SKIP() << "this kernel has no seccomp filters";
    const auto found = OpenReader({}, {path});
    ASSERT_TRUE(found.has_value()) << found.error().message;
    EXPECT_TRUE((*found)->description().starts_with("pread x4, ")) << (*found)->description();
    const auto forced = OpenReader({.kind = ReaderKind::kUring}, {path});
    ASSERT_FALSE(forced.has_value());
    EXPECT_EQ(forced.error().code, Errc::kUnsupported);
    EXPECT_EQ(forced.error().message,
              "io_uring is not available here: Operation not permitted (--reader pread works)");
    const auto missing = OpenReader({}, {"/no/such/file.gguf"});
    ASSERT_FALSE(missing.has_value());
    EXPECT_EQ(missing.error().code, Errc::kIo);
  }).join();
}

TEST(ParseReaderKind, NamesAndErrors) {
  EXPECT_EQ(ParseReaderKind("auto"), ReaderKind::kAuto);
  EXPECT_EQ(ParseReaderKind("uring"), ReaderKind::kUring);
  EXPECT_EQ(ParseReaderKind("pread"), ReaderKind::kPread);
  const auto bad = ParseReaderKind("mmap");
  ASSERT_FALSE(bad.has_value());
  EXPECT_EQ(bad.error().code, Errc::kUsage);
  EXPECT_EQ(bad.error().message, "unknown reader 'mmap' (auto, uring, pread)");
}

}  // namespace
}  // namespace moestro
