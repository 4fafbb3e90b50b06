// SPDX-License-Identifier: MIT
// Which memory is pinned for reads, and that bytes land the same whether it is or not.
#include "store/uring_reader.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <thread>

#include "store/files_testing.h"
#include "store/read_queue.h"

namespace moestro {
namespace {

constexpr uint64_t kLandingBlock = 4096;
constexpr uint64_t kHuge = 2 * kMiB;

// Pages of its own, huge ones if the machine gives them, beginning at a multiple of kHuge.
class Mapping {
 public:
  explicit Mapping(uint64_t size, bool is_huge = true) : size_(size + kHuge) {
    void* const at =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    base_ = static_cast<std::byte*>(at);
    const auto address = reinterpret_cast<uintptr_t>(base_);
    memory_ = {base_ + (AlignUp(address, kHuge) - address), size};
    Populate(is_huge);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { ::munmap(base_, size_); }

  std::span<std::byte> span() const { return memory_; }
  // Puts other pages, full of zeros, at the same addresses.
  void Replace() {
    void* const at = ::mmap(base_, size_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    ASSERT_EQ(at, base_);
    Populate(true);
  }

 private:
  void Populate(bool is_huge) {
    ::madvise(base_, size_, is_huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(base_, 0, size_);
  }

  uint64_t size_;
  std::byte* base_ = nullptr;
  std::span<std::byte> memory_;
};

TEST(BufferOf, FindsOnlyWhatLiesInOneBuffer) {
  std::array<std::byte, 100> memory;
  const std::span<std::byte> all(memory);
  const std::array buffers{all.subspan(10, 20), all.subspan(30, 20), all.subspan(60, 10)};
  EXPECT_EQ(BufferOf(buffers, all.subspan(10, 20)), 0U);
  EXPECT_EQ(BufferOf(buffers, all.subspan(29, 1)), 0U);
  EXPECT_EQ(BufferOf(buffers, all.subspan(35, 15)), 1U);
  EXPECT_EQ(BufferOf(buffers, all.subspan(60, 10)), 2U);
  EXPECT_EQ(BufferOf(buffers, all.subspan(9, 1)), std::nullopt);   // before all buffers
  EXPECT_EQ(BufferOf(buffers, all.subspan(29, 2)), std::nullopt);  // across two
  EXPECT_EQ(BufferOf(buffers, all.subspan(50, 1)), std::nullopt);  // between two
  EXPECT_EQ(BufferOf(buffers, all.subspan(65, 6)), std::nullopt);  // beyond the end
  EXPECT_EQ(BufferOf(buffers, all.subspan(70, 1)), std::nullopt);
  EXPECT_EQ(BufferOf({}, all), std::nullopt);
}

TEST(LandingBuffers, AreWholeHugePagesInAscendingOrder) {
  const Mapping low(6 * kHuge);
  const Mapping other(3 * kHuge);
  // Neither piece is aligned at both ends: two huge pages of other remain, five of low.
  const std::array pieces{other.span().subspan(kLandingBlock),
                          low.span().first(6 * kHuge - kLandingBlock)};
  const auto buffers = LandingBuffers(pieces, 2 * kHuge);
  if (buffers.empty()) GTEST_SKIP() << "no huge pages here, or an older kernel";
  ASSERT_EQ(buffers.size(), 4U);
  uint64_t bytes = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffers[i].data()) % kHuge, 0U);
    EXPECT_EQ(buffers[i].size() % kHuge, 0U);
    EXPECT_LE(buffers[i].size(), 2 * kHuge);
    EXPECT_TRUE(i == 0 || buffers[i - 1].data() < buffers[i].data());
    bytes += buffers[i].size();
  }
  EXPECT_EQ(bytes, 7 * kHuge);
}

TEST(LandingBuffers, GoAroundSmallPages) {
  const Mapping mapping(6 * kHuge);
  const std::array pieces{mapping.span()};
  if (LandingBuffers(pieces).size() != 1) GTEST_SKIP() << "no huge pages here, or an older kernel";
  // The third huge page becomes small ones.
  std::byte* const third = mapping.span().data() + 2 * kHuge;
  ASSERT_EQ(::madvise(third, kHuge, MADV_NOHUGEPAGE), 0);
  ASSERT_EQ(::madvise(third, kHuge, MADV_DONTNEED), 0);
  std::memset(third, 1, kHuge);
  const auto buffers = LandingBuffers(pieces);
  ASSERT_EQ(buffers.size(), 2U);
  EXPECT_EQ(buffers[0].data(), mapping.span().data());
  EXPECT_EQ(buffers[0].size(), 2 * kHuge);
  EXPECT_EQ(buffers[1].data(), third + kHuge);
  EXPECT_EQ(buffers[1].size(), 3 * kHuge);
}

TEST(LandingBuffers, LeaveOutWhatIsNotHuge) {
  const Mapping small(4 * kHuge, false);
  const std::array pieces{small.span(), small.span().first(0), std::span<std::byte>()};
  EXPECT_TRUE(LandingBuffers(pieces).empty());
  EXPECT_TRUE(LandingBuffers({}).empty());
}

// A reader of one file of random bytes, whose last block is not whole.
class Registered : public testing::Test {
 protected:
  static constexpr uint64_t kSize = 5 * kMiB + 700;

  void SetUp() override {
    path_ = dir_.Write("file", RandomBytes(kSize, 3));
    auto reader = OpenUringReader({path_}, 8);
    if (!reader && reader.error().code == Errc::kUnsupported) GTEST_SKIP() << "no io_uring";
    ASSERT_TRUE(reader.has_value()) << reader.error().message;
    reader_ = *std::move(reader);
  }
  bool Register(std::span<std::byte> memory) {
    return reader_->RegisterMemory(std::array{memory}) > 0;
  }
  BlockDone Read(uint64_t offset, std::span<std::byte> to) {
    EXPECT_TRUE(reader_->Submit({.file = 0, .offset = offset, .to = to, .tag = 7}));
    std::array<BlockDone, 1> done;
    EXPECT_EQ(reader_->Wait(done), 1U);
    return done[0];
  }
  // Reads into `to` and compares the bytes, all or up to the file's end.
  void Expect(uint64_t offset, std::span<std::byte> to) {
    const BlockDone done = Read(offset, to);
    EXPECT_EQ(done.error, 0);
    ASSERT_EQ(done.bytes, std::min<uint64_t>(to.size(), kSize - std::min(offset, kSize)));
    EXPECT_TRUE(std::ranges::equal(to.first(done.bytes), Slurp(path_, offset, done.bytes)));
  }

  TempDir dir_;
  std::string path_;
  std::unique_ptr<BlockReader> reader_;
};

#define REGISTER_OR_SKIP(memory) \
  if (!Register(memory)) GTEST_SKIP() << "no huge pages here, or no pinned memory"

TEST_F(Registered, TheSameBytesLandInsideOutsideAndAcross) {
  const Mapping mapping(4 * kHuge);
  const std::span<std::byte> all = mapping.span();
  const std::span<std::byte> inside = all.subspan(kHuge, 2 * kHuge);
  REGISTER_OR_SKIP(inside);
  Expect(0, inside.first(kMiB));
  Expect(3 * kLandingBlock, inside.last(kLandingBlock));
  Expect(kMiB, all.first(kMiB));                                        // before the buffer
  Expect(kLandingBlock, all.subspan(kHuge - kLandingBlock, kMiB));      // across its beginning
  Expect(kLandingBlock, all.subspan(3 * kHuge - kLandingBlock, kMiB));  // across its end
  Expect(0, inside);
  const AlignedMemory elsewhere(kMiB);
  Expect(2 * kLandingBlock, elsewhere.span());
}

TEST_F(Registered, ReadsAtTheEndAreShort) {
  const Mapping mapping(2 * kHuge);
  REGISTER_OR_SKIP(mapping.span());
  Expect(5 * kMiB - kLandingBlock, mapping.span().first(4 * kLandingBlock));
  EXPECT_EQ(Read(6 * kMiB, mapping.span().first(kLandingBlock)).bytes, 0U);
}

TEST_F(Registered, AQueueFinishesShortReadsAndSaysWhatFailed) {
  const Mapping mapping(2 * kHuge);
  REGISTER_OR_SKIP(mapping.span());
  ReadQueue queue(*reader_, {path_}, {.max_request = 64 * kKiB});
  const auto read = [&](Extent from) {
    queue.Enqueue({.from = from, .landing = mapping.span(), .tag = 1});
    std::vector<ExtentDone> done;
    while (!queue.idle()) queue.Wait(done);
    EXPECT_EQ(done.size(), 1U);
    return done[0].error;
  };
  EXPECT_FALSE(read({.file = 0, .offset = 4 * kMiB + 5, .length = kSize - 4 * kMiB - 5}));
  const auto landed = mapping.span().subspan(5, kMiB + 695);
  EXPECT_TRUE(std::ranges::equal(landed, Slurp(path_, 4 * kMiB + 5, kMiB + 695)));
  const auto error = read({.file = 0, .offset = 4 * kMiB, .length = kMiB + 701});
  ASSERT_TRUE(error.has_value());
  EXPECT_TRUE(error->message.starts_with(path_ + " ends at byte 5243580, before byte "))
      << error->message;
}

// The memory pinned at these addresses is no longer the memory mapped there.
TEST_F(Registered, ForgottenMemoryMayChange) {
  Mapping mapping(2 * kHuge);
  REGISTER_OR_SKIP(mapping.span());
  Expect(0, mapping.span().first(kMiB));
  reader_->ForgetMemory();
  mapping.Replace();
  Expect(kMiB, mapping.span().first(kMiB));
  REGISTER_OR_SKIP(mapping.span());
  Expect(2 * kMiB, mapping.span().first(kMiB));
  const Mapping other(kHuge);
  REGISTER_OR_SKIP(other.span());  // in place of the first
  mapping.Replace();
  Expect(3 * kMiB, mapping.span().first(kMiB));
  Expect(3 * kMiB, other.span().first(kMiB));
  EXPECT_FALSE(Register({}));
  Expect(0, other.span().first(kMiB));
}

// Children do not get pinned memory: a fork would have to copy it.
TEST_F(Registered, AForkLeavesItBehind) {
  const Mapping mapping(kHuge);
  const auto has_it = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      unsigned char in_core = 0;
      ::_exit(::mincore(mapping.span().data(), kLandingBlock, &in_core) == 0 ? 1 : 0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WEXITSTATUS(status) == 1;
  };
  REGISTER_OR_SKIP(mapping.span());
  EXPECT_FALSE(has_it());
  reader_->ForgetMemory();
  EXPECT_TRUE(has_it());
}

// Refuses a system call to the calling thread for good.
bool Forbid(uint32_t call) {
  std::array<sock_filter, 4> program{
      sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, call},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOMEM},
      sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog filter{.len = program.size(), .filter = program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

TEST_F(Registered, WhereItIsRefusedReadsGoOnAsBefore) {
  const Mapping mapping(kHuge);
  std::thread([&] {
    auto opened = OpenUringReader({path_}, 8);  // on the thread that uses the reader
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    reader_ = *std::move(opened);
    if (!Forbid(__NR_io_uring_register)) GTEST_SKIP() << "this kernel has no seccomp filters";
    EXPECT_FALSE(Register(mapping.span()));
    Expect(0, mapping.span().first(kMiB));
    reader_->ForgetMemory();
    Expect(kMiB, mapping.span().first(kMiB));
    reader_.reset();
  }).join();
}

}  // namespace
}  // namespace moestro
