// SPDX-License-Identifier: MIT
// For tests of residency: a disk that finishes its reads when a test calls Release().
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "residency/residency.h"

namespace moestro {

inline constexpr uint64_t kBlock = 4096;

// A disk whose reads finish only in Release().
class HeldReader final : public BlockReader {
 public:
  explicit HeldReader(std::vector<std::byte> bytes, uint64_t block = kBlock)
      : bytes_(std::move(bytes)), block_(block) {}

  uint64_t block() const override { return block_; }
  bool Submit(const BlockRead& read) override {
    EXPECT_EQ(read.offset % block_, 0U);
    EXPECT_EQ(read.to.size() % block_, 0U);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.to.data()) % block_, 0U);
    waiting_.push_back(read);
    return true;
  }
  size_t Poll(std::span<BlockDone> out) override {
    size_t n = 0;
    while (released_ > 0 && !waiting_.empty() && n < out.size()) {
      out[n++] = Finish(waiting_.front());
      waiting_.pop_front();
      --released_;
    }
    return n;
  }
  size_t Wait(std::span<BlockDone> out) override {
    if (!waiting_.empty()) released_ = std::max<size_t>(released_, 1);
    return Poll(out);
  }
  std::string description() const override { return "held"; }
  uint64_t RegisterMemory(std::span<const std::span<std::byte>> pieces) override {
    registered_.assign(pieces.begin(), pieces.end());
    uint64_t bytes = 0;
    for (const std::span<std::byte> piece : pieces) bytes += piece.size();
    return bytes;
  }
  void ForgetMemory() override {
    EXPECT_TRUE(waiting_.empty());
    registered_.clear();
  }

  void Release(size_t n) { released_ += n; }
  void FailFrom(uint64_t offset) { bad_from_ = offset; }
  size_t waiting() const { return waiting_.size(); }
  const std::vector<std::span<std::byte>>& registered() const { return registered_; }

 private:
  BlockDone Finish(const BlockRead& read) {
    if (read.offset >= bad_from_) return {.tag = read.tag, .error = EIO, .bytes = 0};
    const uint64_t n = std::min<uint64_t>(read.to.size(), bytes_.size() - read.offset);
    std::memcpy(read.to.data(), bytes_.data() + read.offset, n);
    return {.tag = read.tag, .error = 0, .bytes = n};
  }

  std::vector<std::byte> bytes_;
  uint64_t block_;
  std::deque<BlockRead> waiting_;
  std::vector<std::span<std::byte>> registered_;
  size_t released_ = 0;
  uint64_t bad_from_ = ~uint64_t{0};
};

// Two layers of four experts; slices of 5000, 5000 and 7000 bytes at odd places in one file.
class ResidencyTest : public ::testing::Test {
 protected:
  static constexpr std::array<uint64_t, kMatrices> kSlices = {5000, 5000, 7000};

  void SetUp() override {
    uint64_t offset = 96;
    for (uint16_t layer = 0; layer < 2; ++layer) {
      std::array<std::array<Extent, kMatrices>, 4> slices;
      for (size_t m = 0; m < kMatrices; ++m) {
        for (auto& expert : slices) {
          expert[m] = {.file = 0, .offset = offset, .length = kSlices[m]};
          offset += kSlices[m] + 32;
        }
      }
      for (uint16_t e = 0; e < 4; ++e)
        catalog_.Add(ExpertLayerId{layer}, ExpertId{e}, {}, slices[e]);
    }
    std::vector<std::byte> bytes(offset);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
    file_ = bytes;
    OpenDisk(kBlock);
  }

  // REQUIRES: before Create().
  void OpenDisk(uint64_t block) {
    queue_.reset();
    reader_ = std::make_unique<HeldReader>(file_, block);
    queue_ = std::make_unique<ReadQueue>(*reader_, std::vector<std::string>{"model.gguf"},
                                         ReadQueueOptions{.max_speculative = 2});
  }

  void Create(uint64_t slots, const HostMemorySource& memory = {}) {
    const std::array<uint64_t, 1> per_pool = {slots};
    auto made =
        Residency::Create(catalog_, per_pool, PolicyChoice{}, *queue_, SteadySeconds, memory);
    ASSERT_TRUE(made.has_value());
    residency_ = *std::move(made);
  }

  static ExpertKey Key(int layer, int expert) {
    return {.layer = {static_cast<uint16_t>(layer)}, .expert = {static_cast<uint16_t>(expert)}};
  }
  static bool AllLanded(const Lease& lease) {
    return lease.landed(Matrix::kGate) && lease.landed(Matrix::kUp) && lease.landed(Matrix::kDown);
  }
  void ExpectBytes(const Lease& lease) const {
    for (size_t m = 0; m < kMatrices; ++m) {
      const Extent& from = catalog_.copy(lease.key()).slices[m];
      EXPECT_EQ(0, std::memcmp(lease.matrix(static_cast<Matrix>(m)), file_.data() + from.offset,
                               from.length));
    }
  }

  ExpertCatalog catalog_;
  std::vector<std::byte> file_;
  std::unique_ptr<HeldReader> reader_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Residency> residency_;  // goes first
};

}  // namespace moestro
