// SPDX-License-Identifier: MIT
#include "native/plan/engine_plan.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/number.h"
#include "memory/memory_use.h"

namespace moestro {

uint32_t PromptChunk(const RouterSpec& router) {
  constexpr uint64_t kLeast = 512;
  constexpr uint64_t kMost = 2048;
  constexpr uint64_t kRowsOfAnExpert = 64;
  const uint64_t used = std::max(router.n_used, 1U);
  const uint64_t tokens = kRowsOfAnExpert * router.n_expert / used;
  const uint64_t whole = (tokens + kLeast - 1) / kLeast * kLeast;
  return static_cast<uint32_t>(std::clamp(whole, kLeast, kMost));
}

uint32_t ChunkWithin(uint32_t chunk, uint64_t work, uint64_t room) {
  constexpr uint64_t kShare = 2;
  const bool is_few = chunk / 2 < kLeastChunk;
  if (room == 0 && is_few) return std::max(chunk / 2, std::min(chunk, kFewestInChunk));
  while (chunk / 2 >= kLeastChunk && work > room / kShare) {
    chunk /= 2;
    work /= 2;
  }
  return chunk;
}

uint32_t DeviceChunk(const DeviceChunkCase& of) {
  // A copy from memory of 22 GB/s takes as long as products of 640 rows with 50 TFLOP/s (0.56 bytes
  // a weight).
  constexpr uint64_t kRowsOfAnExpert = 640;
  constexpr uint64_t kStep = 256;
  if (of.slots_there >= of.expert_bytes) return of.usual;
  const uint64_t tokens = kRowsOfAnExpert * of.router.n_expert / std::max(of.router.n_used, 1U);
  const auto within = [&](uint64_t work, uint64_t room) {
    return of.usual + (work > 0 ? room * of.usual / work : 0);
  };
  const uint64_t room_there = std::min(of.vram / 16, of.slots_there / 8);
  const uint64_t most = std::min({tokens, uint64_t{kMostChunk}, within(of.work_there, room_there),
                                  within(of.work_here, of.slots_here / 8)});
  const uint64_t chunk = std::min<uint64_t>(AlignDown(most, kStep), of.n_ctx);
  return std::max(of.usual, static_cast<uint32_t>(chunk));
}

uint32_t ChunkFor(uint32_t asked, const RouterSpec& router) {
  return asked > 0 ? asked : PromptChunk(router);
}

namespace {

// Logits of several rows are computed this many bytes at a time.
constexpr uint64_t kLogitsBytes = 4 * kMiB;

uint32_t LogitsRows(const ModelSpec& spec, uint32_t sequences, uint32_t chunk) {
  const uint64_t rows = kLogitsBytes / (uint64_t{spec.n_vocab} * sizeof(float));
  // A decode step of all sequences takes one product.
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::max<uint64_t>(rows, sequences), 1, chunk));
}

constexpr uint64_t kShareForStates = 8;  // states get an eighth of the room
constexpr uint64_t kMostStates = 32;     // further states, at most

}  // namespace

Result<EnginePlan> EnginePlan::Of(const SizeRequest& request, const ModelSpec& spec,
                                  const MemoryShape& remembers) {
  EnginePlan plan{.n_ctx = std::min(request.ctx, spec.n_ctx_train)};
  if (plan.n_ctx == 0)
    return Fail(Errc::kInvalidRequest, "a context of 0 tokens holds no prompt; set --ctx");
  if (request.sequences == 0) {
    return Fail(Errc::kInvalidRequest,
                "room for 0 sequences holds no prompt; ask for at least one");
  }
  // A decode step of all sequences is computed at once.
  plan.chunk =
      std::min(ChunkFor(request.chunk, spec.router), std::max(plan.n_ctx, request.sequences));
  // A source is computed at once. Half of n_ctx_train is the trained length of a source.
  if (spec.encoder && request.chunk == 0) {
    plan.chunk = std::max(1U, std::min(plan.chunk, spec.n_ctx_train / 2));
  }
  plan.logits_rows = LogitsRows(spec, request.sequences, plan.chunk);
  plan.look_ahead = std::min(request.look_ahead, spec.n_main_expert_layers() - 1);
  TRY(plan.n_blocks, BlocksOf({.n_ctx = plan.n_ctx,
                               .sequences = request.sequences,
                               .common = request.common_positions,
                               .positions = request.positions}));
  plan.cells.all = plan.n_blocks * KvBlocks::kPositions;
  if (remembers.window() > 0) {
    const RecentRoom recent = RecentRoom::Of(remembers.window(), request.sequences, plan.chunk);
    if (recent.blocks < plan.n_blocks) plan.recent = recent;
    plan.cells.recent = plan.recent.cells();
  }
  plan.n_states = remembers.has_states() ? FewestStates(request.sequences) : 0;
  return plan;
}

uint32_t FurtherStates(uint64_t room_bytes, uint64_t state_bytes) {
  return static_cast<uint32_t>(std::min(room_bytes / kShareForStates / state_bytes, kMostStates));
}

namespace {

constexpr int kLayers = 128;

double Uniform(std::mt19937& random) { return static_cast<double>(random()) * 0x1.0p-32; }

}  // namespace

RemoteGain GainOfRemotes(const RemoteCase& of, const LatencyModel& model, PlaceMode mode) {
  std::mt19937 random(1);
  // No device has room for copies: experts stay where they are.
  const std::vector<std::vector<uint32_t>> no_room(of.there.size(), std::vector<uint32_t>(1));
  // Memory gets requests for the experts that hosts lack, and in time holds those experts.
  const double here = 1.0 - std::min(1.0, std::reduce(of.there.begin(), of.there.end()));
  const double beside_hosts = here > of.in_memory ? of.in_memory / here : 1.0;
  RemoteGain gain;
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<LaneJob> jobs(of.n_used);
    std::vector<double> in_memory;  // [job], drawn
    for (LaneJob& job : jobs) {
      job.bytes = of.expert_bytes;
      in_memory.push_back(Uniform(random));
      job.in_memory = in_memory.back() < of.in_memory;
      job.slot_prices.assign(of.there.size(), 0.0);
    }
    gain.without += PlanLanes(jobs, model, PlaceMode::kCpu, no_room).cost();
    for (size_t j = 0; j < jobs.size(); ++j) {
      LaneJob& job = jobs[j];
      double left = Uniform(random);
      for (uint32_t d = 0; d < of.there.size() && !job.on_device; ++d) {
        if (left < of.there[d]) job.on_device = d;
        left -= of.there[d];
      }
      if (!job.on_device) job.in_memory = in_memory[j] < beside_hosts;
    }
    gain.with += PlanLanes(jobs, model, mode, no_room).cost();
  }
  gain.without /= kLayers;
  gain.with /= kLayers;
  return gain;
}

}  // namespace moestro
