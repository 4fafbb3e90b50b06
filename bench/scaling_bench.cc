// SPDX-License-Identifier: MIT
// How a layer's experts are shared by many threads, on a machine with few cores: the engine's own
// team, shares, stages and waiting, with kernels that only sleep for as long as their rows would
// take a thread that reads 20 MB a second: so slow that what it costs to wake one up does not
// count. Memory that many cores share is not simulated, nor is what the engine does between layers.
//
//   scaling_bench
//
// Qwen3-30B-A3B's shape in Q4_0: eight experts of one layer, one row.
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "decide/layer/layer_planner.h"
#include "empty_disk.h"
#include "forward/experts/expert_exec.h"

namespace moestro {
namespace {

constexpr uint32_t kEmbd = 2048;
constexpr uint32_t kFf = 768;
constexpr uint16_t kExperts = 8;
constexpr double kBytesPerSecond = 20e6;

void SleepFor(double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  timespec left{.tv_sec = whole,
                .tv_nsec = static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  while (nanosleep(&left, &left) != 0) {
  }
}

ExpertKernel SleepingKernel() {
  ExpertKernel kernel = *FindExpertKernel(GGML_TYPE_Q4_0, false);
  kernel.quantise = [](const ExpertKernel&, const float*, std::byte*, int64_t) {};
  kernel.multiply = [](const ExpertKernel&, const ExpertKernel::Call& call) {
    const double bytes = static_cast<double>(call.row_bytes) * static_cast<double>(call.n_rows);
    SleepFor(bytes / kBytesPerSecond);
  };
  return kernel;
}

class Layer {
 public:
  explicit Layer(uint32_t threads) : device_(*CpuDevice::Open(threads)) {
    FormKernels& form = kernels_.front();
    form.kernel.fill(SleepingKernel());
    form.row_bytes = {ggml_row_size(GGML_TYPE_Q4_0, kEmbd), ggml_row_size(GGML_TYPE_Q4_0, kEmbd),
                      ggml_row_size(GGML_TYPE_Q4_0, kFf)};
    form.n_embd = kEmbd;
    form.n_ff = kFf;
    uint64_t offset = 0;
    for (uint16_t e = 0; e < kExperts; ++e) {
      std::array<Extent, kMatrices> slices;
      for (size_t m = 0; m < kMatrices; ++m) {
        const bool is_down = m == static_cast<size_t>(Matrix::kDown);
        const uint64_t bytes = form.row_bytes[m] * (is_down ? kEmbd : kFf);
        slices[m] = {.file = 0, .offset = offset, .length = bytes};
        offset += bytes;
      }
      catalog_.Add(ExpertLayerId{0}, ExpertId{e}, {}, slices);
    }
    bytes_ = offset;
    queue_ = std::make_unique<ReadQueue>(disk_, std::vector<std::string>{"nothing"});
    residency_ =
        *Residency::Create(catalog_, std::array{uint64_t{kExperts}}, {.name = "lru"}, *queue_);
    team_ = std::make_unique<Team>(*Team::Create(device_));
    exec_ = *ExpertExec::Create(
        {.team = *team_,
         .residency = *residency_,
         .catalog = catalog_,
         .kernels = kernels_,
         .layers = layers_},
        ExpertExec::LimitsFor(kernels_, {.n_expert = kExperts, .n_used = kExperts}, 1));
  }
  double bytes() const { return static_cast<double>(bytes_); }

  // Seconds of all experts for one row.
  double Run() {
    Routing routing{.n_tokens = 1,
                    .n_used = kExperts,
                    .experts = {},
                    .weights = std::vector<float>(kExperts, 1.0F)};
    for (uint16_t e = 0; e < kExperts; ++e) routing.experts.push_back(ExpertId{e});
    const RowKind kind = RowKind::kDecode;
    const LayerPlan plan = PlanLayer(ExpertLayerId{0}, routing, {&kind, 1},
                                     [this](ExpertKey key) { return residency_->contains(key); });
    const std::vector<float> input(kEmbd, 0.0F);
    std::vector<float> hidden(kEmbd);
    const auto began = std::chrono::steady_clock::now();
    {
      LeaseStream leases(*residency_, plan);
      const ExpertRows io{
          .ffn_in = input.data(), .residual = input.data(), .hidden = hidden.data()};
      if (const Status done = exec_->Run(plan, io, leases, nullptr); !done) {
        std::fprintf(stderr, "%s\n", done.error().message.c_str());
        std::exit(EXIT_FAILURE);
      }
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    residency_->Settle();
    return took.count();
  }

 private:
  ExpertCatalog catalog_;
  uint64_t bytes_ = 0;
  EmptyDisk disk_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Residency> residency_;
  CpuDevice device_;
  std::unique_ptr<Team> team_;
  std::vector<LayerForm> layers_ = std::vector<LayerForm>(1);
  std::vector<FormKernels> kernels_ = std::vector<FormKernels>(1);
  std::unique_ptr<ExpertExec> exec_;
};

void Measure() {
  std::printf("%-8s %14s %14s\n", "threads", "ms a layer", "of the ideal");
  for (const uint32_t threads : {1U, 2U, 3U, 4U, 6U, 8U, 12U, 16U, 24U, 32U, 48U, 64U}) {
    Layer layer(threads);
    layer.Run();  // everything lands
    std::array<double, 3> seconds{};
    for (double& s : seconds) s = layer.Run();
    std::ranges::sort(seconds);
    const double ideal = layer.bytes() / kBytesPerSecond / threads;
    std::printf("%-8u %14.2f %13.1f%%\n", threads, seconds[1] * 1e3, 100.0 * ideal / seconds[1]);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace moestro

int main() {
  prctl(PR_SET_TIMERSLACK, 1UL);  // threads that are started from now on sleep as long as they ask
  moestro::Measure();
}
