// SPDX-License-Identifier: MIT
// A small valid model with a vocabulary, cut off and damaged at thousands of places: each time the
// module gives a value or a one-line error. A crash, an abort of ggml or libllama, or a hang would
// end the test program.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>

#include "base/number.h"
#include "base/text.h"
#include "model/gguf_file.h"
#include "model/gguf_testing.h"
#include "model/model_file.h"
#include "model/read_spec.h"
#include "model/vocab.h"

// Read by the address sanitizer's runtime, if linked. By default that keeps 256 MiB of freed
// memory, as much as these tests allow at all; the tests check memory in use.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=32"; }

namespace moestro {
namespace {

class CorruptionTest : public testing::TestWithParam<const char*> {
 protected:
  CorruptionTest() {
    GgufBuilder builder = SmallMoe(GetParam());
    AddByteLevelVocabulary(builder);
    builder.Write(path_);
    valid_ = ReadBytes(path_);
    const auto file = GgufFile::Open(path_);
    header_bytes_ = file->tensors().front().extent.offset;
  }
  ~CorruptionTest() override { close(memory_); }

  static Status CheckVocab(const std::string& path) {
    TRY(const Vocab vocab, Vocab::Load(path));
    for (const char* text : {"hello world", " a\tb\n\nC 123 \xC3\xA9</s>"}) {
      for (const bool special : {false, true}) {
        const auto tokens = vocab.Tokenize(text, special, special);
        if (!tokens) continue;
        for (const Token token : *tokens) vocab.Piece(token);
      }
    }
    return {};
  }
  Status ReadAll(bool with_vocab) const {
    TRY(const GgufFile file, GgufFile::Open(path_));
    TRY(const ModelSpec spec, ReadSpec(file));
    TRY(const ModelWeights weights, ReadWeights(file, spec));
    for (const LayerWeights& layer : weights.layers) {
      for (const ExpertMatrix& matrix : layer.experts.matrices) {
        for (const Extent& slice : matrix.slices) {
          if (slice.offset + slice.length > file.file_bytes()) {
            return Fail(Errc::kInterrupted, "a slice lies outside the file");
          }
        }
      }
    }
    return with_vocab ? CheckVocab(path_) : Status{};
  }
  // True if everything was accepted.
  bool Try(const std::string& bytes, bool with_vocab) const {
    WriteBytes(path_, bytes);
    const Status status = ReadAll(with_vocab);
    if (status) return true;
    EXPECT_NE(status.error().code, Errc::kInterrupted) << status.error().message;
    EXPECT_FALSE(status.error().message.empty());
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos) << status.error().message;
    EXPECT_LT(status.error().message.size(), 2000U);
    return false;
  }
  static uint64_t PeakBytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
  }

  // A file in memory: thousands of small files on a disk would take a minute.
  int memory_ = memfd_create("corruption", MFD_CLOEXEC);
  std::string path_ = Format("/proc/self/fd/{}", memory_);
  std::string valid_;
  uint64_t header_bytes_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Archs, CorruptionTest, testing::Values("llama", "phimoe"));

TEST_P(CorruptionTest, AcceptsTheValidFile) { EXPECT_TRUE(Try(valid_, true)); }

TEST_P(CorruptionTest, RefusesEveryTruncation) {
  for (uint64_t size = 0; size < valid_.size(); size += size < header_bytes_ ? 7 : 997) {
    EXPECT_FALSE(Try(valid_.substr(0, size), false)) << size;
  }
  // gguf.h pads the last tensor: the file may end where its data ends, not a byte before.
  const auto file = (WriteBytes(path_, valid_), GgufFile::Open(path_));
  const Extent last = file->tensors().back().extent;
  EXPECT_TRUE(Try(valid_.substr(0, last.offset + last.length), false));
  EXPECT_FALSE(Try(valid_.substr(0, last.offset + last.length - 1), false));
}

TEST_P(CorruptionTest, SurvivesFlippedBits) {
  std::mt19937 random(20261121);
  const uint64_t peak_before = PeakBytes();
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = valid_;
    const int flips = round % 4 == 0 ? 3 : 1;
    for (int i = 0; i < flips; ++i) {
      const size_t at = random() % header_bytes_;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
    }
    if (!Try(bytes, round % 3 == 0)) ++refused;
  }
  EXPECT_GT(refused, 100);  // else the flips hit nothing that matters
  EXPECT_LT(PeakBytes() - peak_before, 256 * kMiB);
}

// Numbers that overflow or come close to it, at every place where a number may stand.
TEST_P(CorruptionTest, SurvivesExtremeNumbers) {
  std::mt19937 random(7);
  const uint64_t peak_before = PeakBytes();
  constexpr std::array<uint64_t, 6> kExtremes{
      0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF};
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = valid_;
    const uint64_t value = kExtremes[random() % kExtremes.size()];
    const size_t width = round % 2 == 0 ? 4 : 8;
    const size_t at = random() % (header_bytes_ - width);
    std::memcpy(bytes.data() + at, &value, width);
    Try(bytes, round % 3 == 0);
  }
  EXPECT_LT(PeakBytes() - peak_before, 256 * kMiB);
}

}  // namespace
}  // namespace moestro
