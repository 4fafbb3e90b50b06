// SPDX-License-Identifier: MIT
#include "forward/experts/expert_exec.h"

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "forward/experts/layer_run.h"

namespace moestro {
namespace {

bool QuantiseAlike(const ExpertKernel& a, const ExpertKernel& b) {
  return a.quantise == b.quantise && a.activation_type == b.activation_type;
}

// The distinct kernels that quantise the inputs of gate and up matrices.
std::vector<ExpertKernel> InputKernels(std::span<const FormKernels> forms) {
  std::vector<ExpertKernel> inputs;
  for (const FormKernels& form : forms) {
    for (const Matrix m : {form.first(), Matrix::kUp}) {
      const ExpertKernel& kernel = form.kernel[static_cast<size_t>(m)];
      const auto same = [&](const ExpertKernel& k) { return QuantiseAlike(k, kernel); };
      if (std::ranges::none_of(inputs, same)) inputs.push_back(kernel);
    }
  }
  return inputs;
}

struct ScratchLayout {
  uint64_t products = 0;
  uint64_t products_q = 0;
  uint64_t results = 0;
  uint64_t bytes = 0;

  explicit ScratchLayout(const ExpertExec::Limits& l) {
    const uint64_t pairs = uint64_t{l.rows} * l.n_used;
    const auto padded = [](uint64_t n) { return AlignUp(n, 64); };
    products = padded(uint64_t{l.inputs} * l.rows * l.activation_bytes_embd);
    products_q = products + padded(pairs * l.n_ff * sizeof(float));
    results = products_q + padded(pairs * l.activation_bytes_ff);
    bytes = results + padded(pairs * l.n_embd * sizeof(float));
  }
};

}  // namespace

ExpertExec::ExpertExec(std::unique_ptr<ExpertScratch> scratch) : scratch_(std::move(scratch)) {}
ExpertExec::~ExpertExec() = default;

ExpertExec::Limits ExpertExec::LimitsFor(std::span<const FormKernels> kernels,
                                         const RouterSpec& router, uint32_t rows) {
  Limits limits{.rows = rows, .n_used = router.n_used, .n_expert = router.n_expert};
  limits.inputs = static_cast<uint32_t>(InputKernels(kernels).size());
  for (const FormKernels& form : kernels) {
    limits.n_embd = std::max(limits.n_embd, form.n_embd);
    limits.n_ff = std::max(limits.n_ff, form.n_ff);
    const auto bytes = [&](Matrix m, uint32_t n) {
      return form.kernel[static_cast<size_t>(m)].activation_bytes(n);
    };
    limits.activation_bytes_embd =
        std::max({limits.activation_bytes_embd, bytes(form.first(), form.n_embd),
                  bytes(Matrix::kUp, form.n_embd)});
    limits.activation_bytes_ff =
        std::max(limits.activation_bytes_ff, bytes(Matrix::kDown, form.n_ff));
  }
  return limits;
}

uint64_t ExpertExec::BytesFor(const Limits& limits) { return ScratchLayout(limits).bytes; }

Result<std::unique_ptr<ExpertExec>> ExpertExec::Create(const Parts& parts, const Limits& limits) {
  const ScratchLayout layout(limits);
  auto scratch = std::make_unique<ExpertScratch>(parts, limits);
  TRY(scratch->memory, HostMemory::Allocate(layout.bytes));
  std::byte* base = scratch->memory.data();
  scratch->input = base;
  scratch->products = reinterpret_cast<float*>(base + layout.products);
  scratch->products_q = base + layout.products_q;
  scratch->results = reinterpret_cast<float*>(base + layout.results);
  scratch->input_kernels = InputKernels(parts.kernels);
  for (const FormKernels& form : parts.kernels) {
    scratch->forms.push_back(FormOf(form, scratch->input_kernels, QuantiseAlike));
  }
  if (parts.interleave != InterleaveWhen::kNever) {
    size_t widest = 0;
    for (const FormKernels& form : parts.kernels) {
      widest = std::max(widest, std::ranges::max(form.row_bytes));
    }
    scratch->groups.assign(parts.team.threads(),
                           std::vector<std::byte>(ExpertKernel::kInterleavedRows * widest));
  }
  return std::unique_ptr<ExpertExec>(new ExpertExec(std::move(scratch)));
}

Status ExpertExec::Run(const LayerPlan& plan, const ExpertRows& rows, LeaseStream& leases,
                       LeaseStream* ahead) {
  LayerRun run(*scratch_, plan, rows, {leases, ahead});
  Status worked;
  if (rows.hidden == nullptr) {
    run.Work(0, 1);  // a team has nothing to compute
  } else {
    auto work = [&run](int thread, int n_threads) { run.Work(thread, n_threads); };
    worked = scratch_->parts.team.Run(work);
  }
  run.Close();
  TRY_STATUS(worked);
  if (auto error = run.TakeError()) return std::unexpected(*std::move(error));
  // A stop that came during the sum counts, too, since sums may be missing.
  if (run.is_asked_to_stop()) return Fail(Errc::kInterrupted, "stopped on request");
  return {};
}

std::span<const float> ExpertExec::products(const LayerPlan& plan) const {
  return {scratch_->products, plan.row_of.size() * scratch_->limits.n_ff};
}

std::span<const float> ExpertExec::results(const LayerPlan& plan) const {
  return {scratch_->results, plan.row_of.size() * scratch_->limits.n_embd};
}

const LaneSeconds& ExpertExec::lane_seconds() const { return scratch_->lane_seconds; }

double ExpertExec::wait_seconds() const { return scratch_->wait_seconds; }

}  // namespace moestro
