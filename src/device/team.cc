// SPDX-License-Identifier: MIT
#include "device/team.h"

#include <ggml-alloc.h>
#include <ggml.h>

#include <memory>
#include <utility>

#include "base/caught.h"

namespace moestro {
namespace {

constexpr size_t kLongestFailure = 200;  // taken at the start: later there may be no memory

}  // namespace

void Team::Call::Note(std::string_view why) {
  const std::lock_guard lock(mutex);
  if (!has_failed.exchange(true)) failure.assign(why.substr(0, failure.capacity()));
}

Status Team::Call::TakeFailure() {
  if (!has_failed.load(std::memory_order_relaxed)) return {};
  const std::lock_guard lock(mutex);
  has_failed = false;
  return Fail(Errc::kNoMemory, "a thread of the team failed: {}", failure);
}

Result<Team> Team::Create(CpuDevice& device) {
  Team team;
  team.device_ = &device;
  team.call_ = std::make_unique<Call>();
  team.call_->failure.reserve(kLongestFailure);
  constexpr size_t kNodes = 4;
  const ggml_init_params params{
      .mem_size = kNodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(kNodes, false),
      .mem_buffer = nullptr,
      .no_alloc = true};
  team.context_.reset(ggml_init(params));
  const auto call = [](ggml_tensor* /*result*/, int thread, int n_threads, void* userdata) {
    Call& c = *static_cast<Call*>(userdata);
    // An exception would end the process: these are OpenMP's threads.
    Caught([&] { c.invoke(c.target, thread, n_threads); },
           [&](std::string_view why) { c.Note(why); });
  };
  ggml_tensor* node = ggml_custom_4d(team.context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0,
                                     call, GGML_N_TASKS_MAX, team.call_.get());
  ggml_cgraph* graph = ggml_new_graph_custom(team.context_.get(), kNodes, false);
  ggml_build_forward_expand(graph, node);
  Result<BufferPtr> buffer =
      AllocateTensors(team.context_.get(), ggml_backend_get_default_buffer_type(device.backend()));
  if (!buffer) return Fail(Errc::kNoMemory, "cannot allocate the compute team's node");
  team.buffer_ = *std::move(buffer);
  TRY(team.plan_, device.Plan(graph));
  return team;
}

}  // namespace moestro
