// SPDX-License-Identifier: MIT
// A device that is lost: ggml's calls that reach its driver throw, as Vulkan's do. They do in every
// program that links throwing_backend_testing.cc, whose functions stand before those of ggml's
// library of the same names; calls for the CPU and calls that ggml makes within another are left
// alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moestro {

// What a call is for; each of ggml's functions is of one kind.
enum class DeviceCall : uint8_t {
  kAsk,       // memory, what it supports, what memory it pins
  kStart,     // of a backend
  kAllocate,  // buffers, those of graphs among them
  kPlace,     // of tensors and graphs in buffers
  kClear,
  kCopyThere,
  kCopyBack,
  kLaunch,
  kWait,
  kFree
};
inline constexpr int kDeviceCalls = 10;
std::string NameOf(DeviceCall call);

// While it lives calls are counted, and those of a kind from the `first` on throw, or take their
// time: `count` of them.
// One at a time; calls may come from any thread.
class LostDevice {
 public:
  struct When {
    int64_t first = INT64_MAX;  // from 0, of all kinds, or of the one
    int64_t count = INT64_MAX;
    int kind = -1;         // one DeviceCall; -1: all
    double seconds = 0.0;  // a call takes so much longer; 0: throws
  };
  explicit LostDevice(const When& when);
  ~LostDevice();
  LostDevice(const LostDevice&) = delete;
  LostDevice& operator=(const LostDevice&) = delete;

  // By kind, so far.
  static std::vector<int64_t> calls();
  static int64_t thrown();

  // Before ggml is loaded: a software device takes less time to get ready without the matrix cores
  // that it plays.
  static void LeaveMatrixCores();
};

}  // namespace moestro
