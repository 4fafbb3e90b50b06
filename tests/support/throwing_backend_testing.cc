// SPDX-License-Identifier: MIT
#include "tests/support/throwing_backend_testing.h"

#include <dlfcn.h>
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace moestro {
namespace {

struct State {
  std::mutex mutex;
  bool is_on = false;
  LostDevice::When when;
  std::array<int64_t, kDeviceCalls> calls{};
  int64_t all = 0;
  int64_t thrown = 0;
  std::set<ggml_gallocr_t> allocators;  // of devices
};

State& TheState() {
  static State state;
  return state;
}

thread_local int depth = 0;

// One of ours, until it returns; throws if it is to. What ggml calls within it does not count.
class OneCall {
 public:
  OneCall(DeviceCall kind, bool is_on_device) {
    if (depth == 0 && is_on_device) CountAndThrow(kind);
    ++depth;
  }
  ~OneCall() { --depth; }
  OneCall(const OneCall&) = delete;
  OneCall& operator=(const OneCall&) = delete;

 private:
  static void CountAndThrow(DeviceCall kind) {
    State& state = TheState();
    std::unique_lock lock(state.mutex);
    if (!state.is_on) return;
    const auto k = static_cast<size_t>(kind);
    const int64_t of_kind = state.calls[k]++;
    const int64_t of_all = state.all++;
    if (state.when.kind >= 0 && state.when.kind != static_cast<int>(kind)) return;
    const int64_t n = state.when.kind >= 0 ? of_kind : of_all;
    if (n < state.when.first || n - state.when.first >= state.when.count) return;
    ++state.thrown;
    if (const double seconds = state.when.seconds; seconds > 0.0) {
      lock.unlock();
      return std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
    throw std::runtime_error("lost on purpose at " + NameOf(kind));
  }
};

bool IsDevice(ggml_backend_dev_t device) {
  return device != nullptr && ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_CPU;
}
bool IsDevice(ggml_backend_buffer_type_t type) {
  return type != nullptr && IsDevice(ggml_backend_buft_get_device(type));
}
bool IsDevice(ggml_backend_buffer_t buffer) {
  return buffer != nullptr && IsDevice(ggml_backend_buffer_get_type(buffer));
}
bool IsDevice(ggml_backend_t backend) {
  return backend != nullptr && IsDevice(ggml_backend_get_device(backend));
}
bool IsDevice(ggml_gallocr_t allocator) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.allocators.contains(allocator);
}

// ggml's own function of that name.
template <class Function>
Function Next(const char* name) {
  auto* found = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  if (found == nullptr) throw std::logic_error(std::string("ggml has no ") + name);
  return found;
}

}  // namespace

std::string NameOf(DeviceCall call) {
  static constexpr std::array<const char*, kDeviceCalls> kNames = {
      "ask",        "start",     "allocate", "place", "clear",
      "copy there", "copy back", "launch",   "wait",  "free"};
  return kNames[static_cast<size_t>(call)];
}

LostDevice::LostDevice(const When& when) {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.is_on = true;
  state.when = when;
  state.calls = {};
  state.all = 0;
  state.thrown = 0;
}

LostDevice::~LostDevice() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  state.is_on = false;
}

std::vector<int64_t> LostDevice::calls() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return {state.calls.begin(), state.calls.end()};
}

void LostDevice::LeaveMatrixCores() {
  if (std::getenv("MOESTRO_TEST_MATRIX_CORES") != nullptr) return;
  setenv("GGML_VK_DISABLE_COOPMAT", "1", 0);
}

int64_t LostDevice::thrown() {
  State& state = TheState();
  const std::lock_guard lock(state.mutex);
  return state.thrown;
}

}  // namespace moestro

using moestro::DeviceCall;
using moestro::IsDevice;
using moestro::Next;
using moestro::OneCall;

// A function that throws instead of calling ggml's.
#define THROWS_FIRST(kind, on, name, call)                 \
  static const auto next = Next<decltype(&(name))>(#name); \
  const OneCall counted(DeviceCall::kind, IsDevice(on));   \
  return next call

extern "C" {

void ggml_backend_dev_memory(ggml_backend_dev_t device, size_t* free, size_t* total) {
  THROWS_FIRST(kAsk, device, ggml_backend_dev_memory, (device, free, total));
}
bool ggml_backend_dev_supports_op(ggml_backend_dev_t device, const ggml_tensor* op) {
  THROWS_FIRST(kAsk, device, ggml_backend_dev_supports_op, (device, op));
}
ggml_backend_buffer_type_t ggml_backend_dev_host_buffer_type(ggml_backend_dev_t device) {
  THROWS_FIRST(kAsk, device, ggml_backend_dev_host_buffer_type, (device));
}
ggml_backend_t ggml_backend_init_by_name(const char* name, const char* params) {
  THROWS_FIRST(kStart, ggml_backend_dev_by_name(name), ggml_backend_init_by_name, (name, params));
}
ggml_backend_t ggml_backend_dev_init(ggml_backend_dev_t device, const char* params) {
  THROWS_FIRST(kStart, device, ggml_backend_dev_init, (device, params));
}
ggml_backend_buffer_t ggml_backend_buft_alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
  THROWS_FIRST(kAllocate, type, ggml_backend_buft_alloc_buffer, (type, size));
}
ggml_backend_buffer_t ggml_backend_alloc_buffer(ggml_backend_t backend, size_t size) {
  THROWS_FIRST(kAllocate, backend, ggml_backend_alloc_buffer, (backend, size));
}
ggml_backend_buffer* ggml_backend_alloc_ctx_tensors_from_buft(ggml_context* context,
                                                              ggml_backend_buffer_type_t type) {
  THROWS_FIRST(kAllocate, type, ggml_backend_alloc_ctx_tensors_from_buft, (context, type));
}
bool ggml_gallocr_reserve(ggml_gallocr_t allocator, ggml_cgraph* graph) {
  THROWS_FIRST(kAllocate, allocator, ggml_gallocr_reserve, (allocator, graph));
}
bool ggml_gallocr_alloc_graph(ggml_gallocr_t allocator, ggml_cgraph* graph) {
  THROWS_FIRST(kPlace, allocator, ggml_gallocr_alloc_graph, (allocator, graph));
}
void ggml_backend_buffer_clear(ggml_backend_buffer_t buffer, uint8_t value) {
  THROWS_FIRST(kClear, buffer, ggml_backend_buffer_clear, (buffer, value));
}
void ggml_backend_tensor_set(ggml_tensor* tensor, const void* data, size_t offset, size_t size) {
  THROWS_FIRST(kCopyThere, tensor->buffer, ggml_backend_tensor_set, (tensor, data, offset, size));
}
void ggml_backend_tensor_get(const ggml_tensor* tensor, void* data, size_t offset, size_t size) {
  THROWS_FIRST(kCopyBack, tensor->buffer, ggml_backend_tensor_get, (tensor, data, offset, size));
}
void ggml_backend_tensor_set_async(ggml_backend_t backend, ggml_tensor* tensor, const void* data,
                                   size_t offset, size_t size) {
  THROWS_FIRST(kCopyThere, backend, ggml_backend_tensor_set_async,
               (backend, tensor, data, offset, size));
}
void ggml_backend_tensor_get_async(ggml_backend_t backend, const ggml_tensor* tensor, void* data,
                                   size_t offset, size_t size) {
  THROWS_FIRST(kCopyBack, backend, ggml_backend_tensor_get_async,
               (backend, tensor, data, offset, size));
}
ggml_backend_event_t ggml_backend_event_new(ggml_backend_dev_t device) {
  THROWS_FIRST(kAllocate, device, ggml_backend_event_new, (device));
}
void ggml_backend_event_record(ggml_backend_event_t event, ggml_backend_t backend) {
  THROWS_FIRST(kLaunch, backend, ggml_backend_event_record, (event, backend));
}
ggml_status ggml_backend_graph_compute(ggml_backend_t backend, ggml_cgraph* graph) {
  THROWS_FIRST(kLaunch, backend, ggml_backend_graph_compute, (backend, graph));
}
ggml_status ggml_backend_graph_compute_async(ggml_backend_t backend, ggml_cgraph* graph) {
  THROWS_FIRST(kLaunch, backend, ggml_backend_graph_compute_async, (backend, graph));
}

// These do their work first: a lost device computes nothing any more, so its memory may be freed,
// and a program that goes through thousands of losses keeps nothing.

void ggml_backend_synchronize(ggml_backend_t backend) {
  static const auto next = Next<decltype(&ggml_backend_synchronize)>("ggml_backend_synchronize");
  ++moestro::depth;
  next(backend);
  --moestro::depth;
  const OneCall counted(DeviceCall::kWait, IsDevice(backend));
}

void ggml_backend_event_synchronize(ggml_backend_event_t event) {
  static const auto next =
      Next<decltype(&ggml_backend_event_synchronize)>("ggml_backend_event_synchronize");
  next(event);
  const OneCall counted(DeviceCall::kWait, true);  // the CPU has no events
}

ggml_status ggml_backend_tensor_alloc(ggml_backend_buffer_t buffer, ggml_tensor* tensor,
                                      void* address) {
  static const auto next = Next<decltype(&ggml_backend_tensor_alloc)>("ggml_backend_tensor_alloc");
  const ggml_status status = next(buffer, tensor, address);
  const OneCall counted(DeviceCall::kPlace, IsDevice(buffer));
  return status;
}
ggml_gallocr_t ggml_gallocr_new(ggml_backend_buffer_type_t type) {
  static const auto next = Next<decltype(&ggml_gallocr_new)>("ggml_gallocr_new");
  ggml_gallocr_t made = next(type);
  if (!IsDevice(type)) return made;
  moestro::State& state = moestro::TheState();
  const std::lock_guard lock(state.mutex);
  state.allocators.insert(made);
  return made;
}
void ggml_gallocr_free(ggml_gallocr_t allocator) {
  static const auto next = Next<decltype(&ggml_gallocr_free)>("ggml_gallocr_free");
  const bool is_on_device = IsDevice(allocator);
  {
    ++moestro::depth;  // what it frees is part of it
    next(allocator);
    --moestro::depth;
    moestro::State& state = moestro::TheState();
    const std::lock_guard lock(state.mutex);
    state.allocators.erase(allocator);
  }
  const OneCall counted(DeviceCall::kFree, is_on_device);
}
void ggml_backend_buffer_free(ggml_backend_buffer_t buffer) {
  static const auto next = Next<decltype(&ggml_backend_buffer_free)>("ggml_backend_buffer_free");
  const bool is_on_device = IsDevice(buffer);
  next(buffer);
  const OneCall counted(DeviceCall::kFree, is_on_device);
}
void ggml_backend_free(ggml_backend_t backend) {
  static const auto next = Next<decltype(&ggml_backend_free)>("ggml_backend_free");
  const bool is_on_device = IsDevice(backend);
  next(backend);
  const OneCall counted(DeviceCall::kFree, is_on_device);
}

}  // extern "C"
