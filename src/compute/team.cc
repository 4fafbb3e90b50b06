// SPDX-License-Identifier: MIT
#include "compute/team.h"

#include <ggml-alloc.h>
#include <ggml-cpp.h>
#include <ggml.h>

#include <cstring>
#include <memory>
#include <utility>

#include "base/result.h"

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

namespace {

constexpr size_t kLongestFailure = 200;  // reserved at the start, since memory may be short later

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

// Catches exceptions, which would end the process in OpenMP's threads.
void Team::Call::Invoke(const Callback& callback, int thread, int threads) {
  Caught([&] { callback(thread, threads); }, [&](std::string_view why) { Note(why); });
}

// Called by every thread of the team once in a run of the graph.
void Team::Call::Enter(int thread, int threads) {
  if (body.invoke == nullptr) return Invoke(work, thread, threads);
  if (thread == 0) return HoldOthers(threads);
  Serve(thread, threads, 0);
}

void Team::Call::HoldOthers(int threads) {
  n_threads = threads;
  is_held = true;
  try {
    body(0, threads);
  } catch (...) {
    thrown = std::current_exception();
  }
  is_held = false;
  is_over = true;
  jobs.Add(1);
}

// `seen`: the number of earlier jobs.
void Team::Call::Serve(int thread, int threads, uint32_t seen) {
  while (true) {
    jobs.WaitUntil([seen](uint32_t now) { return now != seen; });
    ++seen;
    if (is_over) return;
    Invoke(work, thread, threads);
    done.Add(1);
  }
}

Status Team::HoldFor(const Callback& body) {
  Call& call = *call_;
  call.body = body;
  call.is_over = false;
  call.jobs.Store(0);
  const Status done = ComputePlan(plan_);
  call.body = {};
  if (call.thrown) std::rethrow_exception(std::exchange(call.thrown, nullptr));
  return done;
}

Status Team::RunHeld() {
  Call& call = *call_;
  call.done.Store(0);
  call.jobs.Add(1);
  call.Invoke(call.work, 0, call.n_threads);
  const auto others = static_cast<uint32_t>(call.n_threads - 1);
  call.done.WaitUntil([others](uint32_t n) { return n == others; });
  return {};
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
    static_cast<Call*>(userdata)->Enter(thread, n_threads);
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
