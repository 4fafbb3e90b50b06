// SPDX-License-Identifier: MIT
#include "compute/backend_calls.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/result.h"
#include "base/terminal.h"
#include "base/text.h"

namespace moestro {
namespace {

// Turns an exception into an Error, for work that returns a Status or a Result.
template <class Work>
auto Guarded(std::string_view what, Work&& work) {
  return Caught(std::forward<Work>(work), [&](std::string_view why) {
    return Fail(Errc::kDevice, "{} failed: {}", what, why);
  });
}

// Drops an exception. Calls that free something have no caller that an error could reach.
template <class Work>
void Swallowed(Work&& work) noexcept {
  Caught([&] { work(); }, [](std::string_view) {});
}

Status GaveUp(ggml_status status, Errc code) {
  if (status == GGML_STATUS_SUCCESS) return {};
  if (status == GGML_STATUS_ABORTED) return Fail(Errc::kInterrupted, "stopped on request");
  return Fail(code, "ggml could not run a graph: {}", ggml_status_to_string(status));
}

Result<BufferPtr> Given(BufferPtr buffer) {
  if (buffer) return buffer;
  return Fail(Errc::kNoMemory, "there is not so much memory");
}

}  // namespace

void FreeBackend::operator()(ggml_backend_t backend) const noexcept {
  Swallowed([&] { ggml_backend_free(backend); });
}

void FreeBuffer::operator()(ggml_backend_buffer_t buffer) const noexcept {
  Swallowed([&] { ggml_backend_buffer_free(buffer); });
}

void FreeAllocator::operator()(ggml_gallocr_t allocator) const noexcept {
  Swallowed([&] { ggml_gallocr_free(allocator); });
}

void FreeEvent::operator()(ggml_backend_event_t event) const noexcept {
  Swallowed([&] { ggml_backend_event_free(event); });
}

void FreeGraphPlan::operator()(ggml_backend_graph_plan_t plan) const noexcept {
  Swallowed([&] { ggml_backend_graph_plan_free(backend, plan); });
}

void LoadPlugIn(const std::string& file) {
  Caught(
      [&] { ggml_backend_load(file.c_str()); },
      [&](std::string_view why) { PrintOnStderr(Format("{} cannot be used: {}\n", file, why)); });
}

void LoadAllPlugIns() {
  Swallowed([] { ggml_backend_load_all(); });
}

Result<BackendPtr> StartBackend(const std::string& name) {
  return Guarded("starting the device", [&]() -> Result<BackendPtr> {
    BackendPtr backend(ggml_backend_init_by_name(name.c_str(), nullptr));
    if (backend) return backend;
    return Fail(Errc::kDevice, "ggml's backend refuses");
  });
}

Result<DeviceMemory> MemoryOf(ggml_backend_dev_t device) {
  return Guarded("asking the device for its memory", [&]() -> Result<DeviceMemory> {
    size_t available = 0;
    size_t total = 0;
    ggml_backend_dev_memory(device, &available, &total);
    return DeviceMemory{.available = available, .total = total};
  });
}

bool Computes(ggml_backend_dev_t device, const ggml_tensor* node) {
  return Caught([&] { return ggml_backend_dev_supports_op(device, node); },
                [](std::string_view) { return false; });
}

ggml_backend_buffer_type_t PinnedTypeOf(ggml_backend_dev_t device) {
  return Caught([&] { return ggml_backend_dev_host_buffer_type(device); },
                [](std::string_view) -> ggml_backend_buffer_type_t { return nullptr; });
}

Result<BufferPtr> AllocateBuffer(ggml_backend_buffer_type_t type, uint64_t bytes) {
  return Guarded("taking memory of the device",
                 [&] { return Given(BufferPtr(ggml_backend_buft_alloc_buffer(type, bytes))); });
}

Result<BufferPtr> AllocateTensors(ggml_context* context, ggml_backend_buffer_type_t type) {
  return Guarded("taking memory of the device", [&] {
    return Given(BufferPtr(ggml_backend_alloc_ctx_tensors_from_buft(context, type)));
  });
}

void PlaceTensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, std::byte* at) {
  // ggml sets the tensor's place before calling the driver, so the place stays after an exception.
  Swallowed([&] { CHECK(ggml_backend_tensor_alloc(buffer, tensor, at) == GGML_STATUS_SUCCESS); });
}

Status ClearBuffer(ggml_backend_buffer_t buffer) {
  return Guarded("clearing memory of the device", [&]() -> Status {
    ggml_backend_buffer_clear(buffer, 0);
    return {};
  });
}

Status CopyTo(ggml_tensor* tensor, uint64_t offset, std::span<const std::byte> bytes) {
  return Guarded("a copy to the device", [&]() -> Status {
    ggml_backend_tensor_set(tensor, bytes.data(), offset, bytes.size());
    return {};
  });
}

Status CopyFrom(const ggml_tensor* tensor, uint64_t offset, std::span<std::byte> bytes) {
  return Guarded("a copy from the device", [&]() -> Status {
    ggml_backend_tensor_get(tensor, bytes.data(), offset, bytes.size());
    return {};
  });
}

Status QueueCopyTo(ggml_backend_t backend, ggml_tensor* tensor, uint64_t offset,
                   std::span<const std::byte> bytes) {
  return Guarded("a copy to the device", [&]() -> Status {
    ggml_backend_tensor_set_async(backend, tensor, bytes.data(), offset, bytes.size());
    return {};
  });
}

Status QueueCopyFrom(ggml_backend_t backend, const ggml_tensor* tensor, uint64_t offset,
                     std::span<std::byte> bytes) {
  return Guarded("a copy from the device", [&]() -> Status {
    ggml_backend_tensor_get_async(backend, tensor, bytes.data(), offset, bytes.size());
    return {};
  });
}

EventPtr MakeEvent(ggml_backend_dev_t device) {
  return Caught([&] { return EventPtr(ggml_backend_event_new(device)); },
                [](std::string_view) { return EventPtr(); });
}

Status RecordEvent(ggml_backend_t backend, ggml_backend_event_t event) {
  return Guarded("a copy to the device", [&]() -> Status {
    ggml_backend_event_record(event, backend);
    return {};
  });
}

Status AwaitEvent(ggml_backend_event_t event) {
  return Guarded("a copy to the device", [&]() -> Status {
    ggml_backend_event_synchronize(event);
    return {};
  });
}

Result<bool> IsSound(const ggml_tensor* tensor) {
  constexpr size_t kAtOnce = 16 * kMiB;
  const size_t all = ggml_nbytes(tensor);
  const size_t step = std::max<size_t>(kAtOnce / tensor->nb[1], 1) * tensor->nb[1];  // whole rows
  std::vector<std::byte> bytes;
  for (size_t at = 0; at < all; at += step) {
    bytes.resize(std::min(step, all - at));
    TRY_STATUS(CopyFrom(tensor, at, bytes));
    if (!ggml_validate_row_data(tensor->type, bytes.data(), bytes.size())) return false;
  }
  return true;
}

Status ReserveGraph(ggml_gallocr_t allocator, ggml_cgraph* graph) {
  return Guarded("taking memory for a graph", [&]() -> Status {
    if (ggml_gallocr_reserve(allocator, graph)) return {};
    return Fail(Errc::kNoMemory, "cannot allocate the graph buffer; lower --chunk or --ctx");
  });
}

Status PlaceGraph(ggml_gallocr_t allocator, ggml_cgraph* graph) {
  return Guarded("placing a graph", [&]() -> Status {
    if (ggml_gallocr_alloc_graph(allocator, graph)) return {};
    return Fail(Errc::kNoMemory, "cannot place a graph; lower --chunk or --ctx");
  });
}

Status ComputeOn(ggml_backend_t backend, ggml_cgraph* graph) {
  return Guarded("computing a graph", [&] {
    return GaveUp(ggml_backend_graph_compute(backend, graph), Errc::kNoMemory);
  });
}

Result<GraphPlanPtr> PlanGraph(ggml_backend_t backend, ggml_cgraph* graph) {
  return Guarded("planning a graph", [&]() -> Result<GraphPlanPtr> {
    GraphPlanPtr plan(ggml_backend_graph_plan_create(backend, graph), FreeGraphPlan{backend});
    if (plan) return plan;
    return Fail(Errc::kNoMemory, "cannot plan a graph");
  });
}

Status ComputePlan(const GraphPlanPtr& plan) {
  return Guarded("computing a graph", [&] {
    return GaveUp(ggml_backend_graph_plan_compute(plan.get_deleter().backend, plan.get()),
                  Errc::kNoMemory);
  });
}

Status LaunchOn(ggml_backend_t backend, ggml_cgraph* graph) {
  return Guarded("a launch", [&] {
    return GaveUp(ggml_backend_graph_compute_async(backend, graph), Errc::kDevice);
  });
}

Status WaitFor(ggml_backend_t backend) {
  return Guarded("a launch", [&]() -> Status {
    ggml_backend_synchronize(backend);
    return {};
  });
}

}  // namespace moestro
