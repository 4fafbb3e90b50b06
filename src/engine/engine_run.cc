// SPDX-License-Identifier: MIT
// An engine at work: tokens in, logits out, and what the machine can do at best.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "engine/engine_impl.h"
#include "residency/lease_stream.h"
#include "store/probe.h"

namespace moestro {

using Clock = std::chrono::steady_clock;

void Engine::Rewind(uint32_t position) {
  if (position < impl_->position) impl_->last_token.reset();
  impl_->position = std::min(position, impl_->position);
}

Status Engine::Impl::CheckTokens(std::span<const Token> tokens) const {
  if (tokens.empty()) return Fail(Errc::kInvalidRequest, "there are no tokens to evaluate");
  if (tokens.size() > n_ctx - position) {
    return Fail(Errc::kInvalidRequest,
                "{} tokens after {} do not fit a context of {}; raise --ctx (this model allows {})",
                tokens.size(), position, n_ctx, spec.n_ctx_train);
  }
  for (const Token t : tokens) {
    if (t >= 0 && static_cast<uint32_t>(t) < spec.n_vocab) continue;
    return Fail(Errc::kInvalidRequest, "token {} is outside the vocabulary (0 to {})", t,
                spec.n_vocab - 1);
  }
  return {};
}

Status Engine::Impl::Counted(PhaseStats& phase, size_t n_tokens,
                             const std::function<Status()>& work) {
  const ResidencyStats before = residency->stats();
  const double waited = experts->wait_seconds();
  const Clock::time_point start = Clock::now();
  const Status status = work();
  if (!status) {
    prefetcher->Clear();
    residency->Settle();
  }
  const ResidencyStats after = residency->stats();
  phase.seconds += SecondsSince(start);
  phase.wait_seconds += experts->wait_seconds() - waited;
  phase.expert_uses += after.requests - before.requests;
  phase.hits += after.hits - before.hits;
  phase.misses += after.late + after.misses - before.late - before.misses;
  phase.evictions += after.evictions - before.evictions;
  phase.guesses += after.guesses - before.guesses;
  phase.good_guesses += after.good_guesses - before.good_guesses;
  phase.dropped_guesses += after.dropped - before.dropped;
  phase.late += after.late - before.late;
  phase.disk_bytes += after.bytes_read - before.bytes_read;
  phase.needed_bytes += after.needed_bytes - before.needed_bytes;
  if (status) phase.tokens += n_tokens;
  return status;
}

// A decode step, and what it cost for those who decide about prefetch.
Status Engine::Impl::Decode(Token token, uint32_t at) {
  const ResidencyStats before = residency->stats();
  const double dense_before = forward->dense_seconds();
  const bool looks_ahead = planner->look_ahead() > 0;
  const Clock::time_point start = Clock::now();
  TRY_STATUS(forward->Decode(token, at));
  const ResidencyStats after = residency->stats();
  planner->TokenDone(
      {.seconds = SecondsSince(start),
       .demand_seconds = after.demand_seconds - before.demand_seconds,
       .demand_reads = after.misses + after.late - before.misses - before.late,
       .look_ahead_seconds =
           looks_ahead ? (forward->dense_seconds() - dense_before) * look_ahead_share : 0});
  return {};
}

Status Engine::Impl::RunChunk(std::span<const Token> tokens, uint32_t first, const char* what) {
  return forward->Prefill(tokens, first,
                          [&](uint32_t layers_done) { Report(what, layers_done, spec.n_layer); });
}

Result<std::span<const float>> Engine::Append(std::span<const Token> tokens) {
  Impl& m = *impl_;
  TRY_STATUS(m.CheckTokens(tokens));
  if (m.position == 0) m.BeginSequence();
  Status status;
  if (tokens.size() == 1) {
    PhaseStats& decode = m.stats.decode;
    const PhaseStats before = decode;
    status = m.Counted(decode, 1, [&] { return m.Decode(tokens[0], m.position); });
    if (status) {
      m.stats.decode_ms.Add((decode.seconds - before.seconds) * 1e3);
      m.stats.decode_bytes.Add(static_cast<double>(decode.needed_bytes - before.needed_bytes));
    }
  } else {
    status = m.Counted(m.stats.prefill, tokens.size(), [&]() -> Status {
      for (size_t at = 0; at < tokens.size(); at += m.chunk) {
        const auto part = tokens.subspan(at, std::min<size_t>(m.chunk, tokens.size() - at));
        TRY_STATUS(m.RunChunk(part, m.position + static_cast<uint32_t>(at), "prefill"));
        if (at + part.size() == tokens.size()) {
          TRY_STATUS(m.graph->Head(static_cast<uint32_t>(part.size() - 1), 1));
        }
      }
      return {};
    });
  }
  TRY_STATUS(std::move(status));
  m.position += static_cast<uint32_t>(tokens.size());
  m.last_token = tokens.back();
  return std::span<const float>(m.buffers.logits(), m.spec.n_vocab);
}

Result<std::vector<float>> Engine::AppendAll(std::span<const Token> tokens) {
  Impl& m = *impl_;
  TRY_STATUS(m.CheckTokens(tokens));
  if (m.position == 0) m.BeginSequence();
  std::vector<float> logits;
  logits.reserve(tokens.size() * m.spec.n_vocab);
  Status status = m.Counted(m.stats.prefill, tokens.size(), [&]() -> Status {
    for (size_t at = 0; at < tokens.size(); at += m.chunk) {
      const auto part = tokens.subspan(at, std::min<size_t>(m.chunk, tokens.size() - at));
      TRY_STATUS(m.RunChunk(part, m.position + static_cast<uint32_t>(at), "prefill"));
      for (uint32_t row = 0; row < part.size(); row += m.logits_rows) {
        const uint32_t n = std::min(m.logits_rows, static_cast<uint32_t>(part.size()) - row);
        TRY_STATUS(m.graph->Head(row, n));
        const float* rows = m.buffers.logits();
        logits.insert(logits.end(), rows, rows + size_t{n} * m.spec.n_vocab);
      }
    }
    return {};
  });
  TRY_STATUS(std::move(status));
  m.position += static_cast<uint32_t>(tokens.size());
  m.last_token = tokens.back();
  return logits;
}

Status Engine::Preload() {
  Impl& m = *impl_;
  if (m.memory.n_slots < m.memory.n_experts) {
    return Fail(Errc::kInvalidRequest, "{} slots do not hold all {} experts; raise --ram",
                m.memory.n_slots, m.memory.n_experts);
  }
  const uint32_t layers = m.spec.n_expert_layers();
  for (uint16_t l = 0; l < layers; ++l) {
    std::vector<ExpertKey> keys;
    for (uint16_t e = 0; e < m.spec.router.n_expert; ++e) {
      keys.push_back({.layer = LayerId{l}, .expert = {e}});
    }
    LeaseStream leases(*m.residency, std::move(keys), Use::kPrefill, Urgency::kDemand);
    leases.Advance();
    CHECK(leases.all_taken());
    m.residency->Drain();
    if (auto error = m.residency->TakeError()) return std::unexpected(*std::move(error));
    m.Report("loading experts", l + 1U, layers);
  }
  return {};
}

Result<double> Engine::ProbeDiskBandwidth() {
  // A prefill may leave reads under way that nobody waited for; the probe would meet their results.
  impl_->residency->Settle();
  std::vector<Extent> regions;
  uint64_t largest = 0;
  for (const ExpertCatalog::Layer& layer : impl_->catalog.layers) {
    for (const std::vector<Extent>& slices : layer.slices) {
      regions.insert(regions.end(), slices.begin(), slices.end());
      largest = std::max(largest, slices.front().length);
    }
  }
  const ProbeOptions defaults;
  TRY(const BandwidthProbe probe,
      ProbeBandwidth(
          *impl_->reader, regions,
          {.request = std::min(defaults.request, AlignUp(largest, impl_->reader->block()))}));
  return probe.bytes_per_second;
}

Result<std::optional<double>> Engine::ProbeComputeSeconds() {
  Impl& m = *impl_;
  if (!m.last_token || m.position == 0) return std::optional<double>();
  constexpr int kRepeats = 4;
  std::optional<double> best;
  for (int i = 0; i < kRepeats; ++i) {
    PhaseStats once;
    Status status = m.Counted(once, 1, [&] { return m.Decode(*m.last_token, m.position - 1); });
    // A stop that came too late for the tokens before is no reason to fail now.
    if (!status && status.error().code == Errc::kInterrupted) continue;
    TRY_STATUS(std::move(status));
    if (once.misses == 0) best = std::min(best.value_or(once.seconds), once.seconds);
  }
  return best;
}

}  // namespace moestro
