// SPDX-License-Identifier: MIT
#include "device/team.h"

#include <ggml-alloc.h>
#include <ggml.h>

#include <memory>

namespace moestro {

Result<Team> Team::Create(CpuDevice& device) {
  Team team;
  team.device_ = &device;
  team.call_ = std::make_unique<Call>();
  constexpr size_t kNodes = 4;
  const ggml_init_params params{
      .mem_size = kNodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(kNodes, false),
      .mem_buffer = nullptr,
      .no_alloc = true};
  team.context_.reset(ggml_init(params));
  const auto call = [](ggml_tensor* /*result*/, int thread, int n_threads, void* userdata) {
    const Call& c = *static_cast<Call*>(userdata);
    c.invoke(c.target, thread, n_threads);
  };
  ggml_tensor* node = ggml_custom_4d(team.context_.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0,
                                     call, GGML_N_TASKS_MAX, team.call_.get());
  team.graph_ = ggml_new_graph_custom(team.context_.get(), kNodes, false);
  ggml_build_forward_expand(team.graph_, node);
  team.buffer_.reset(ggml_backend_alloc_ctx_tensors(team.context_.get(), device.backend()));
  if (!team.buffer_) return Fail(Errc::kNoMemory, "cannot allocate the compute team's node");
  return team;
}

}  // namespace moestro
