// SPDX-License-Identifier: MIT
// Bytes between memory and a device of this machine: by the ring of pinned memory and beside it, at
// once and behind later launches.
#include "devices/device_link.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/devices.h"

namespace moestro {
namespace {

class DeviceLinkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<DeviceInfo> found = FindDevices();
    const auto info = std::ranges::find(found, DeviceKind::kSoftware, &DeviceInfo::kind);
    if (info == found.end()) GTEST_SKIP() << "no software device";
    auto device = ComputeDevice::Open(*info);
    ASSERT_TRUE(device) << device.error().message;
    device_.emplace(*std::move(device));
    link_.emplace(*device_);
  }

  std::optional<ComputeDevice> device_;
  std::optional<DeviceLink> link_;
};

// Borders larger than what is left of the ring, and than the ring.
TEST_F(DeviceLinkTest, BytesCrossWhateverTheRingHolds) {
  const auto buffer = BackendBuffer::On(device_->backend(), 3 * DeviceLink::kRing);
  ASSERT_TRUE(buffer) << buffer.error().message;
  uint8_t value = 1;
  for (const uint64_t bytes : {DeviceLink::kRing / 2 + 64, DeviceLink::kRing / 2 + 64,
                               DeviceLink::kRing, 2 * DeviceLink::kRing}) {
    const std::vector<std::byte> wanted(bytes, std::byte{value++});
    std::vector<std::byte> back(bytes);
    ASSERT_TRUE(link_->Cross({.writes = {{.to = buffer->bytes(), .offset = 64, .from = wanted}}}));
    ASSERT_TRUE(link_->Cross({.reads = {{.from = buffer->bytes(), .offset = 64, .to = back}}}));
    EXPECT_TRUE(back == wanted) << bytes;
  }
  EXPECT_EQ(link_->traffic().bytes_there, link_->traffic().bytes_back);
}

// Reads that were queued have the bytes of their time, and others may be written and read before
// they land, in the ring or beside it.
TEST_F(DeviceLinkTest, QueuedReadsLandInOrder) {
  const auto buffer = BackendBuffer::On(device_->backend(), 4 * DeviceLink::kRing);
  ASSERT_TRUE(buffer) << buffer.error().message;
  for (const uint64_t bytes : {uint64_t{4096}, DeviceLink::kRing / 2, 2 * DeviceLink::kRing}) {
    SCOPED_TRACE(bytes);
    std::array<std::vector<std::byte>, 3> back;
    std::array<uint64_t, 3> numbers{};
    for (size_t i = 0; i < back.size(); ++i) {
      const std::vector<std::byte> wanted(bytes, static_cast<std::byte>(bytes / 4096 + i));
      back[i].resize(bytes);
      // Reads beside the ring are made as they land, and so have a place of their own.
      const uint64_t at = bytes < DeviceLink::kRing ? 0 : i * 4096;
      ASSERT_TRUE(
          link_->Cross({.writes = {{.to = buffer->bytes(), .offset = at, .from = wanted}}}));
      const auto number = link_->QueueReads(
          {{.from = buffer->bytes(), .offset = at, .to = std::span(back[i])}}, i < 2);
      ASSERT_TRUE(number) << number.error().message;
      numbers[i] = *number;
    }
    ASSERT_TRUE(link_->Land(numbers[0]));
    EXPECT_EQ(back[0].front(), static_cast<std::byte>(bytes / 4096));
    std::vector<std::byte> others(64);
    ASSERT_TRUE(link_->Cross({.reads = {{.from = buffer->bytes(), .to = others}}}));
    for (const uint64_t number : {numbers[2], numbers[1], numbers[0]}) {
      ASSERT_TRUE(link_->Land(number));
    }
    for (size_t i = 1; i < back.size(); ++i) {
      EXPECT_EQ(back[i].back(),
                static_cast<std::byte>(bytes / 4096 + (bytes < DeviceLink::kRing ? i : 2)));
    }
    EXPECT_EQ(numbers[2], numbers[0] + 2);
  }
}

}  // namespace
}  // namespace moestro
