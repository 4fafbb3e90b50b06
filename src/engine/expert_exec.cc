// SPDX-License-Identifier: MIT
#include "engine/expert_exec.h"

#include <utility>

#include "base/bytes.h"
#include "engine/layer_run.h"

namespace moestro {

ExpertExec::ExpertExec(std::unique_ptr<ExpertScratch> scratch) : scratch_(std::move(scratch)) {}
ExpertExec::~ExpertExec() = default;

namespace {

struct ScratchLayout {
  uint64_t products = 0;
  uint64_t products_q = 0;
  uint64_t results = 0;
  uint64_t bytes = 0;

  explicit ScratchLayout(const ExpertExec::Limits& l) {
    const uint64_t pairs = uint64_t{l.tokens} * l.n_used;
    const auto padded = [](uint64_t n) { return AlignUp(n, 64); };
    products = padded(2 * uint64_t{l.tokens} * l.activation_bytes_embd);
    products_q = products + padded(pairs * l.n_ff * sizeof(float));
    results = products_q + padded(pairs * l.activation_bytes_ff);
    bytes = results + padded(pairs * l.n_embd * sizeof(float));
  }
};

}  // namespace

uint64_t ExpertExec::BytesFor(const Limits& limits) { return ScratchLayout(limits).bytes; }

Result<std::unique_ptr<ExpertExec>> ExpertExec::Create(Team& team, Residency& residency,
                                                       const Limits& limits) {
  const ScratchLayout layout(limits);
  auto scratch = std::make_unique<ExpertScratch>();
  scratch->team = &team;
  scratch->residency = &residency;
  scratch->limits = limits;
  TRY(scratch->memory, HostMemory::Allocate(layout.bytes));
  std::byte* base = scratch->memory.data();
  scratch->input = base;
  scratch->products = reinterpret_cast<float*>(base + layout.products);
  scratch->products_q = base + layout.products_q;
  scratch->results = reinterpret_cast<float*>(base + layout.results);
  scratch->jobs = std::vector<JobState>(limits.n_expert);
  scratch->up_rows.resize(team.threads());
  return std::unique_ptr<ExpertExec>(new ExpertExec(std::move(scratch)));
}

Status ExpertExec::Run(const LayerKernels& layer, const Routing& routing, const ExpertJobs& jobs,
                       const ExpertRows& rows, LeaseStream& leases, LeaseStream* ahead) {
  LayerRun run(*scratch_, layer, routing, jobs, rows, {leases, ahead});
  TRY_STATUS(
      scratch_->team->Run([&run](int thread, int n_threads) { run.Work(thread, n_threads); }));
  if (auto error = run.TakeError()) return std::unexpected(*std::move(error));
  return {};
}

double ExpertExec::wait_seconds() const { return scratch_->wait_seconds; }

}  // namespace moestro
