// SPDX-License-Identifier: MIT
// Runs the experts of one layer on the compute team while their bytes are still arriving.
//
// Work is cut into blocks of weight rows. A free thread takes the next block whose bytes have
// landed: first resident experts, then each late expert as it lands. Between blocks thread 0 also
// advances the reads, so no separate I/O thread competes for a core. Results are summed per row in
// router order at the end, which makes the sum independent of the order of arrival.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/expert_kernel.h"
#include "compute/host_memory.h"
#include "compute/team.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "residency/leases.h"
#include "residency/residency.h"

namespace moestro {

// Additions of a model's family to the experts of a layer.
struct LayerForm {
  Activation activation = Activation::kSwiglu;
  float limit = 0.0F;  // FeedForwardSpec::limit_expert
  // Biases of each matrix's products, [expert][n_ff] and for down [expert][n_embd]; null: no bias.
  std::array<const float*, kMatrices> bias{};
  std::span<const float> router_bias;     // [expert], added to the router's logits; empty: none
  std::span<const float> selection_bias;  // [expert], for Route(); empty: none
  // [token][K]: the experts of tokens, where they follow from tokens; empty: the router chooses.
  std::span<const int32_t> of_tokens;
  std::span<const float> result_scale;  // [expert], factors of experts' results; empty: 1
};

class StepBuffers;

// The rows of a layer. n_embd: width of the experts' inputs and results.
struct ExpertRows {
  const float* ffn_in = nullptr;    // [rows][n_embd]
  const float* shared = nullptr;    // [rows][n_embd], added to the sum; null: no shared expert
  const float* residual = nullptr;  // [rows][n_embd], added last; null: the next graph adds it
  // [rows][n_embd], the result; null: all experts are for the first device, which has the result.
  float* hidden = nullptr;
  uint32_t hidden_stride = 0;  // values from one row of `hidden` to the next; 0: n_embd
  // Not null: the first device takes the rows from there and keeps its results, which are not part
  // of `hidden`.
  const StepBuffers* there = nullptr;
};

// When an expert in its slot is changed to the layout that its kernels read fastest
// (ExpertKernel::interleave, docs/decisions/0018). An expert from the disk is first multiplied in
// the layout of the file.
enum class InterleaveWhen : uint8_t {
  kNever,
  kMetAgain,  // at its second use: the expert will stay for a while
  kThere,     // also at its first use if it was resident before: used if no expert is ever evicted
};

class DeviceList;
struct ExpertScratch;  // defined in expert_exec.cc

class ExpertExec {
 public:
  // The parts for computing: the copies of a catalog, and the kernels of their forms.
  struct Parts {
    Team& team;
    Residency& residency;
    const ExpertCatalog& catalog;
    std::span<const FormKernels> kernels;  // by form
    std::span<const LayerForm> layers;     // by layer
    DeviceList* devices = nullptr;         // null: plans are for the CPU alone
    // Unless kNever, no other code may read slots of `residency`: no device copies from them.
    InterleaveWhen interleave = InterleaveWhen::kNever;
    StopSignal* stop = nullptr;  // null: no stop is requested
  };
  // Room for `rows` rows of K experts each; the widths are the largest of any form.
  struct Limits {
    uint32_t rows = 0;
    uint32_t n_used = 0;
    uint32_t n_expert = 0;
    uint32_t n_embd = 0;
    uint32_t n_ff = 0;
    uint32_t inputs = 1;               // number of different quantisations of the forms' inputs
    size_t activation_bytes_embd = 0;  // largest quantised row of n_embd values
    size_t activation_bytes_ff = 0;    // largest quantised row of n_ff values
  };
  static Limits LimitsFor(std::span<const FormKernels> kernels, const RouterSpec& router,
                          uint32_t rows);
  static uint64_t BytesFor(const Limits& limits);
  // All members of `parts` must outlive this.
  static Result<std::unique_ptr<ExpertExec>> Create(const Parts& parts, const Limits& limits);
  ~ExpertExec();

  // hidden = sum of weight * expert(ffn_in) + shared + residual, per row in router order. `leases`
  // holds the experts of the plan that do not run from a device's slots, in the plan's order. Each
  // lease is released after use. `ahead`, if any, is advanced once all of `leases` are taken. Fails
  // with the error of a read that failed, kInterrupted, or kDevice; hidden is then undefined.
  Status Run(const LayerPlan& plan, const ExpertRows& rows, LeaseStream& leases,
             LeaseStream* ahead);

  // [pair][n_ff]: the inputs of the down matrices in the last Run(), before quantisation. Valid
  // until the next Run(). REQUIRES: the last Run() was for `plan` and succeeded.
  std::span<const float> products(const LayerPlan& plan) const;
  // [pair][n_embd]: the results of the experts in the last Run(). Valid as products() is.
  std::span<const float> results(const LayerPlan& plan) const;

  // Times of the last Run().
  const LaneSeconds& lane_seconds() const;

  // Seconds in which thread 0 only waited for bytes, since creation.
  double wait_seconds() const;

 private:
  explicit ExpertExec(std::unique_ptr<ExpertScratch> scratch);
  std::unique_ptr<ExpertScratch> scratch_;
};

}  // namespace moestro
