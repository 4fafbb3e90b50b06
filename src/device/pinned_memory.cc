// SPDX-License-Identifier: MIT
#include "device/pinned_memory.h"

#include <ggml-backend.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>

#include "base/bytes.h"
#include "base/check.h"
#include "device/backend_calls.h"

namespace moestro {
namespace {

constexpr uint64_t kPage = 4 * kKiB;

}  // namespace

uint64_t MostPinned(const ComputeDevice& device) {
  ggml_backend_buffer_type_t type = PinnedTypeOf(device.handle());
  if (type == nullptr) return 0;
  const uint64_t most = ggml_backend_buft_get_max_size(type);
  return most > kPage ? most - kPage : 0;
}

Result<HostMemory> AllocatePinned(const ComputeDevice& device, uint64_t bytes) {
  ggml_backend_buffer_type_t type = PinnedTypeOf(device.handle());
  if (type == nullptr || bytes > MostPinned(device)) {
    return Fail(Errc::kNoMemory, "the device {} offers no {} of pinned memory", device.info().name,
                FormatBytes(bytes));
  }
  // A page more, since a driver may align to less.
  Result<BufferPtr> given = AllocateBuffer(type, bytes + kPage);
  const std::shared_ptr<ggml_backend_buffer> buffer = given ? *std::move(given) : nullptr;
  // Backends that fail give plain memory instead, with another buffer type.
  if (buffer == nullptr || ggml_backend_buffer_get_type(buffer.get()) != type) {
    return Fail(Errc::kNoMemory, "the device {} has no {} of pinned memory left",
                device.info().name, FormatBytes(bytes));
  }
  auto* base = static_cast<std::byte*>(ggml_backend_buffer_get_base(buffer.get()));
  std::byte* aligned = base + (AlignUp(reinterpret_cast<uintptr_t>(base), kPage) -
                               reinterpret_cast<uintptr_t>(base));
  AdviseHugePages(aligned, bytes);
  return HostMemory::Of(buffer, {aligned, bytes});
}

bool is_cached(const HostMemory& memory) {
  CHECK(memory.size() >= kMiB);
  const std::span words(reinterpret_cast<const volatile uint64_t*>(memory.data()), kMiB / 8);
  // Reads one word per cache line: microseconds with caches, 16384 trips to memory without.
  constexpr size_t kStep = 8;
  constexpr double kLong = 1e-3;
  double best = 1.0;
  for (int time = 0; time < 4; ++time) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t i = 0; i < words.size(); i += kStep) {
      [[maybe_unused]] const uint64_t word = words[i];
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::min(best, took.count());
  }
  return best < kLong;
}

}  // namespace moestro
