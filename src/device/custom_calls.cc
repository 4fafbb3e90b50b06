// SPDX-License-Identifier: MIT
#include "device/custom_calls.h"

#include <ggml-cpp.h>

#include <cstring>

namespace moestro {
namespace {

// The assumed layout of a custom node's parameters.
struct Parameters {
  ggml_custom_op_t work;
  int n_tasks;
  void* userdata;
};

Parameters ParametersOf(const ggml_tensor* node) {
  Parameters parameters{};
  static_assert(sizeof(parameters) <= sizeof(node->op_params));
  std::memcpy(&parameters, node->op_params, sizeof(parameters));
  return parameters;
}

void Nothing(ggml_tensor* /*result*/, int /*thread*/, int /*n_threads*/, void* /*userdata*/) {}

}  // namespace

CustomCalls::CustomCalls() {
  const ggml_context_ptr context(
      ggml_init({.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  constexpr int kTasks = 3;
  const ggml_tensor* trial =
      ggml_custom_4d(context.get(), GGML_TYPE_F32, 1, 1, 1, 1, nullptr, 0, Nothing, kTasks, this);
  const Parameters found = ParametersOf(trial);
  is_known_ = found.work == Nothing && found.n_tasks == kTasks && found.userdata == this;
}

std::optional<CustomCall> CustomCalls::Of(const ggml_tensor* node) const {
  if (!is_known_ || node->op != GGML_OP_CUSTOM) return std::nullopt;
  const auto [work, n_tasks, userdata] = ParametersOf(node);
  if (n_tasks != GGML_N_TASKS_MAX && n_tasks != 1) return std::nullopt;
  return CustomCall{.work = work, .userdata = userdata, .is_alone = n_tasks == 1};
}

}  // namespace moestro
