// SPDX-License-Identifier: MIT
// ggml's calls that reach a backend's driver. A driver that has lost its device, or has no memory
// left, may answer any call with an exception, also calls that free something. No exception leaves
// this file: each becomes an Error of kind kDevice with the driver's words. All other code calls
// backends through these functions (scripts/layers.py checks).
//
// Thread rule: ggml's. One thread at a time for a backend; copies to different bytes of a buffer
// may come from several threads.
#pragma once

#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace moestro {

// Owners. Memory that a lost device does not take back stays with the device.
struct FreeBackend {
  void operator()(ggml_backend_t backend) const noexcept;
};
struct FreeBuffer {
  void operator()(ggml_backend_buffer_t buffer) const noexcept;
};
struct FreeAllocator {
  void operator()(ggml_gallocr_t allocator) const noexcept;
};
using BackendPtr = std::unique_ptr<ggml_backend, FreeBackend>;
using BufferPtr = std::unique_ptr<ggml_backend_buffer, FreeBuffer>;
using AllocatorPtr = std::unique_ptr<ggml_gallocr, FreeAllocator>;
struct FreeGraphPlan {
  ggml_backend_t backend = nullptr;
  void operator()(ggml_backend_graph_plan_t plan) const noexcept;
};
struct FreeEvent {
  void operator()(ggml_backend_event_t event) const noexcept;
};
// A point in the order of a backend's launches and copies.
using EventPtr = std::unique_ptr<ggml_backend_event, FreeEvent>;
// A backend's plan of a placed graph, for any number of runs.
using GraphPlanPtr = std::unique_ptr<void, FreeGraphPlan>;

// Loads a plug-in's file. A plug-in that cannot be used counts as absent; an exception prints a
// sentence on stderr.
void LoadPlugIn(const std::string& file);
void LoadAllPlugIns();

// kDevice: the backend does not start.
Result<BackendPtr> StartBackend(const std::string& name);
struct DeviceMemory {
  uint64_t available = 0;
  uint64_t total = 0;
};
Result<DeviceMemory> MemoryOf(ggml_backend_dev_t device);
// Whether the device computes the node. False also if the driver fails to answer.
bool Computes(ggml_backend_dev_t device, const ggml_tensor* node);
// Null: the device offers no pinned memory of the host.
ggml_backend_buffer_type_t PinnedTypeOf(ggml_backend_dev_t device);

// kNoMemory: the message names no purpose; the caller adds the purpose.
Result<BufferPtr> AllocateBuffer(ggml_backend_buffer_type_t type, uint64_t bytes);
// Allocates one buffer with a place for each tensor of the context. kNoMemory.
Result<BufferPtr> AllocateTensors(ggml_context* context, ggml_backend_buffer_type_t type);
// Gives a tensor its place. An exception is dropped: a driver that fails here fails again, with an
// Error, at the tensor's next use.
void PlaceTensor(ggml_backend_buffer_t buffer, ggml_tensor* tensor, std::byte* at);
Status ClearBuffer(ggml_backend_buffer_t buffer);

// Both wait until the bytes are copied. REQUIRES: the bytes are within the tensor.
Status CopyTo(ggml_tensor* tensor, uint64_t offset, std::span<const std::byte> bytes);
Status CopyFrom(const ggml_tensor* tensor, uint64_t offset, std::span<std::byte> bytes);

// Both may return before the bytes are copied, in the order of launches; WaitFor() ends the copies.
// From and to memory that is not pinned a driver may wait. REQUIRES: the bytes live until then.
Status QueueCopyTo(ggml_backend_t backend, ggml_tensor* tensor, uint64_t offset,
                   std::span<const std::byte> bytes);
Status QueueCopyFrom(ggml_backend_t backend, const ggml_tensor* tensor, uint64_t offset,
                     std::span<std::byte> bytes);

// Null: the device has no events.
EventPtr MakeEvent(ggml_backend_dev_t device);
// Places the event behind all launches and copies so far, and sends them to the device.
Status RecordEvent(ggml_backend_t backend, ggml_backend_event_t event);
// Waits until the device has passed the event. Any thread. REQUIRES: the event was recorded.
Status AwaitEvent(ggml_backend_event_t event);

// Whether no weight of a tensor on a device is NaN or infinite. Reads the tensor in pieces.
// kDevice. REQUIRES: the tensor lies as in a file; ggml reads no other layout back.
Result<bool> IsSound(const ggml_tensor* tensor);

// kNoMemory.
Status ReserveGraph(ggml_gallocr_t allocator, ggml_cgraph* graph);
Status PlaceGraph(ggml_gallocr_t allocator, ggml_cgraph* graph);
// Runs a placed graph to its end. kInterrupted: the abort callback ended the run; kNoMemory: the
// backend gave up.
Status ComputeOn(ggml_backend_t backend, ggml_cgraph* graph);
// kNoMemory, kDevice. The graph, its places and the backend's present settings are used until the
// plan is freed. REQUIRES: a CPU backend.
Result<GraphPlanPtr> PlanGraph(ggml_backend_t backend, ggml_cgraph* graph);
// As ComputeOn().
Status ComputePlan(const GraphPlanPtr& plan);
// Returns while the device computes.
Status LaunchOn(ggml_backend_t backend, ggml_cgraph* graph);
// Waits until all launches are done.
Status WaitFor(ggml_backend_t backend);

}  // namespace moestro
