// SPDX-License-Identifier: MIT
// An engine at work: tokens in, logits out, and what the machine can do at best.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <map>
#include <ranges>
#include <utility>

#include "base/check.h"
#include "device/memory_probe.h"
#include "forward/dense/made_up_cells.h"
#include "native/native_impl.h"
#include "residency/lease_stream.h"

namespace moestro {

Status NativeEngine::Impl::CheckBatch(const Batch& batch) const {
  if (batch.rows.empty()) return Fail(Errc::kInvalidRequest, "there are no tokens to evaluate");
  TRY_STATUS(CheckLittleStep(batch));
  std::map<SequenceId, uint32_t> lengths;  // with the rows checked so far
  for (const BatchRow& row : batch.rows) {
    const Timeline* timeline = sequences->Find(row.sequence);
    if (timeline == nullptr) {
      return Fail(Errc::kInvalidRequest, "there is no sequence {}", row.sequence.value);
    }
    const auto length =
        lengths.try_emplace(row.sequence, static_cast<uint32_t>(timeline->tokens.size())).first;
    if (row.position != length->second) {
      return Fail(Errc::kInvalidRequest, "position {} does not follow a sequence of {} tokens",
                  row.position, length->second);
    }
    if (++length->second > n_ctx) {
      return Fail(
          Errc::kInvalidRequest,
          "{} tokens after {} do not fit a context of {}; raise --ctx (this model allows {})",
          std::ranges::count(batch.rows, row.sequence, &BatchRow::sequence),
          timeline->tokens.size(), n_ctx, model.spec.n_ctx_train);
    }
    if (row.token < 0 || static_cast<uint32_t>(row.token) >= model.spec.n_vocab) {
      return Fail(Errc::kInvalidRequest, "token {} is outside the vocabulary (0 to {})", row.token,
                  model.spec.n_vocab - 1);
    }
  }
  return {};
}

// Cells for all rows, or nothing at all.
Status NativeEngine::Impl::Extend(const Batch& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchRow& row = batch.rows[i];
    const Status extended = sequences->Append(row.sequence, {&row.token, 1});
    if (extended) continue;
    CutBack({.rows = {batch.rows.begin(), batch.rows.begin() + static_cast<std::ptrdiff_t>(i)}});
    return extended;
  }
  return {};
}

// Every sequence to where it was before the rows.
void NativeEngine::Impl::CutBack(const Batch& batch) {
  for (const BatchRow& row : std::views::reverse(batch.rows)) {
    sequences->CutBack(row.sequence, row.position);
  }
}

void NativeEngine::Impl::Commit(const Batch& batch) {
  for (const BatchRow& row : batch.rows) sequences->Commit(row.sequence);
}

bool NativeEngine::Impl::CanRepeat(const Batch& last) const {
  return std::ranges::all_of(last.rows, [this](const BatchRow& row) {
    return sequences->Reach(row.sequence, row.position) == row.position;
  });
}

Status NativeEngine::Impl::Repeat(const Batch& last, PhaseStats& phase) {
  CutBack(last);
  TRY_STATUS(Extend(last));
  const Status status = Counted(phase, [&] { return Compute(last, {}); });
  if (status) {
    Commit(last);
  } else {
    CutBack(last);  // what their cells hold is not known
  }
  return status;
}

Status NativeEngine::Impl::Counted(PhaseStats& phase, const std::function<Status()>& work) {
  PhaseCount* const around = std::exchange(counting, nullptr);  // of a step that has stepped aside
  PhaseCount count = BeginCount(phase);
  counting = &count;
  const Status status = work();
  if (!status) {
    protocol->Clear();
    residency->Abandon();
    if (status.error().code == Errc::kInterrupted) stop.Take();
  }
  EndCount(count);
  counting = around;
  return status;
}

PhaseCount NativeEngine::Impl::BeginCount(PhaseStats& phase) const {
  return {.phase = &phase,
          .residency = residency->stats(),
          .lost = protocol->losses(),
          .touched = dense_touched,
          .waited = experts->wait_seconds(),
          .start = std::chrono::steady_clock::now()};
}

void NativeEngine::Impl::EndCount(const PhaseCount& count) const {
  PhaseStats& phase = *count.phase;
  const ResidencyStats did = residency->stats().Since(count.residency);
  phase.seconds += SecondsSince(count.start);
  phase.wait_seconds += experts->wait_seconds() - count.waited;
  phase.expert_uses += did.requests;
  phase.hits += did.hits;
  phase.misses += did.late + did.misses;
  phase.late += did.late;
  phase.evictions += did.evictions;
  phase.row_uses += did.row_requests;
  phase.row_hits += did.row_hits;
  phase.prefetches += did.prefetches;
  phase.used_prefetches += did.used_prefetches;
  phase.dropped_prefetches += did.dropped_prefetches;
  phase.disk_bytes += did.bytes_read;
  phase.needed_bytes += did.needed_bytes;
  phase.touched_bytes += did.asked_bytes + dense_touched - count.touched;
  phase.losses += protocol->losses().Since(count.lost);
}

Status NativeEngine::Impl::Compute(const Batch& batch, const LogitsSink& sink) {
  const ResidencyStats before = residency->stats();
  const double dense_before = forward->dense_seconds();
  const double start = options.clock();
  protocol->BeginStep(batch.little);
  if (!batch.foreseen.empty() && look_ahead > 0) {
    const size_t experts_of_rows = batch.foreseen.front().size();
    protocol->Foresee(batch.foreseen,
                      static_cast<uint32_t>(experts_of_rows / model.spec.router.n_used));
  }
  const bool looks_ahead = planner->look_ahead() > 0;
  for (size_t first = 0; first < batch.size(); first += chunk) {
    TRY_STATUS(ComputeChunk(batch, first, std::min<size_t>(chunk, batch.size() - first), sink));
  }
  if (!batch.has_decode_rows()) return {};
  const ResidencyStats did = residency->stats().Since(before);
  planner->StepDone(
      {.seconds = options.clock() - start,
       .demand_seconds = did.demand_seconds,
       .demand_reads = did.misses + did.late,
       .look_ahead_seconds =
           looks_ahead ? (forward->dense_seconds() - dense_before) * look_ahead_share : 0});
  return {};
}

// Once a second. A change ends this step and all later ones.
Status NativeEngine::Impl::LookAtFiles() {
  Status looked = watch.LookNowAndThen();
  if (!looked) lasting.closed = looked.error();
  return looked;
}

// The first row of a step goes on from the sequence's state, the others from where they write.
static RowState StateOf(const Timeline& timeline, uint32_t position) {
  if (position > timeline.committed()) return {.from = timeline.next, .to = timeline.next};
  if (!timeline.state) return {.to = timeline.next};
  return {.from = timeline.state->state, .to = timeline.next};
}

Status NativeEngine::Impl::ComputeChunk(const Batch& batch, size_t first, size_t n,
                                        const LogitsSink& sink) {
  const auto part = std::span(batch.rows).subspan(first, n);
  std::map<SequenceId, std::vector<CellRun>> runs;
  std::vector<StepRow> rows;
  std::vector<RowKind> kinds;
  for (const BatchRow& row : part) {
    const Timeline& timeline = *sequences->Find(row.sequence);
    const KvTimeline& cells = timeline.cells;
    auto visible = runs.find(row.sequence);
    if (visible == runs.end()) visible = runs.emplace(row.sequence, cells.Runs()).first;
    rows.push_back({.token = row.token,
                    .position = row.position,
                    .cell = cells.cell(row.position),
                    .visible = {.runs = visible->second, .n_positions = row.position + 1},
                    .state = StateOf(timeline, row.position)});
    kinds.push_back(row.kind);
  }
  dense_touched += dense_reads.OfPass(part);
  const bool is_prompt = !std::ranges::contains(kinds, RowKind::kDecode);
  const Forward::Hooks hooks{.layer_begins =
                                 [&](uint32_t layers_done) {
                                   if (is_prompt)
                                     Report("prefill", layers_done, model.spec.n_layer());
                                   return LookAtFiles();
                                 },
                             .interlude = is_prompt ? InterludeOf(batch) : Interlude{}};
  TRY_STATUS(forward->Step(rows, kinds, batch.little, hooks));
  return Heads(batch, first, n, sink);
}

// Final norm and output matrix for the rows that want logits, neighbours together.
Status NativeEngine::Impl::Heads(const Batch& batch, size_t first, size_t n,
                                 const LogitsSink& sink) {
  for (size_t at = 0; at < n;) {
    uint32_t together = 0;
    while (together < logits_rows && at + together < n &&
           batch.rows[first + at + together].wants_logits) {
      ++together;
    }
    if (together == 0) {
      ++at;
      continue;
    }
    TRY_STATUS(graph->Head(static_cast<uint32_t>(at), together));
    for (uint32_t i = 0; i < together && sink; ++i) {
      sink(first + at + i, {buffers.logits() + size_t{i} * model.spec.n_vocab, model.spec.n_vocab});
    }
    at += together;
  }
  return {};
}

Result<std::span<const float>> NativeEngine::Impl::CheckExactly(const Batch& batch) {
  const BatchRow& row = batch.rows.front();
  const bool is_checkable = exact_check && check_observer && batch.size() == 1 &&
                            row.kind == RowKind::kDecode && row.wants_logits;
  if (!is_checkable || ++checkable_steps % options.check_every != 0) {
    return std::span<const float>();
  }
  // What is still being read is the phase's own and counts there.
  TRY_STATUS(Counted(stats.decode, [this] {
    residency->Drain();
    return Status();
  }));
  const Timeline& timeline = *sequences->Find(row.sequence);
  const std::vector<CellRun> runs = timeline.cells.Runs();
  auto exact = exact_check->Evaluate({.token = row.token,
                                      .position = row.position,
                                      .cell = timeline.cells.cell(row.position),
                                      .visible = {.runs = runs, .n_positions = row.position + 1},
                                      .state = StateOf(timeline, row.position)});
  if (!exact && exact.error().code == Errc::kInterrupted) stop.Take();
  return exact;
}

Status NativeEngine::Impl::RunStep(const Batch& batch, PhaseStats& phase, const LogitsSink& sink) {
  const Status status = Counted(phase, [&] {
    return is_for_little(batch) ? ComputeLittleFirst(batch, sink) : Compute(batch, sink);
  });
  if (status) {
    Commit(batch);
  } else {
    CutBack(batch);
  }
  return status;
}

Status NativeEngine::StepWhole(const Batch& batch, const LogitsSink& sink) {
  Impl& m = *impl_;
  if (lasting_->closed) return std::unexpected(*lasting_->closed);
  TRY_STATUS(m.CheckBatch(batch));
  if (!m.sequences->any_lives()) m.BeginSequence();
  TRY_STATUS(m.Extend(batch));
  RunStats& stats = lasting_->stats;
  if (m.device_tier && !m.device_tier->is_filled() && batch.has_decode_rows()) {
    TRY_STATUS(m.Counted(stats.prefill, [&m]() -> Status {
      m.FillDeviceByPrompt();
      return {};
    }));
  }
  PhaseStats& phase = batch.has_decode_rows() ? stats.decode : stats.prefill;
  const Result<std::span<const float>> exact = m.CheckExactly(batch);
  if (!exact) {
    m.CutBack(batch);
    if (exact.error().code != Errc::kDevice || !m.may_leave_devices()) {
      return std::unexpected(exact.error());
    }
    TRY_STATUS(LeaveDevices(exact.error()));
    return StepWhole(batch, sink);  // there are no devices now
  }
  // Logits are told once, even if the step is computed again.
  size_t told = 0;
  size_t known = 0;
  bool is_checked = !exact->empty();
  const LogitsSink sees = [&](size_t row, std::span<const float> logits) {
    if (known > 0) {
      --known;
      return;
    }
    ++told;
    if (is_checked) lasting_->check_observer(*exact, logits);
    if (sink) sink(row, logits);
  };
  const PhaseStats before = phase;
  Status status = m.RunStep(batch, phase, sees);
  if (!status && status.error().code == Errc::kDevice && m.may_leave_devices()) {
    TRY_STATUS(LeaveDevices(status.error()));  // and with it all of `m`
    TRY_STATUS(impl_->Extend(batch));
    known = told;
    is_checked = false;  // what was exact is gone
    status = impl_->RunStep(batch, phase, sees);
  }
  TRY_STATUS(std::move(status));
  if (batch.little.is_on()) return {};  // a pass, no tokens
  phase.tokens += batch.size();
  if (batch.has_decode_rows()) {
    stats.decode_ms.Add((phase.seconds - before.seconds) * 1e3);
    stats.decode_bytes.Add(static_cast<double>(phase.needed_bytes - before.needed_bytes));
  }
  return {};
}

Status NativeEngine::MakeUp(const Sequence& sequence, std::span<const Token> tokens,
                            uint64_t seed) {
  if (lasting_->closed) return std::unexpected(*lasting_->closed);
  Impl& m = *impl_;
  CHECK(sequence.position() == 0);
  Batch rows;
  for (const Token token : tokens) {
    rows.rows.push_back({.sequence = sequence.id(),
                         .position = static_cast<uint32_t>(rows.size()),
                         .token = token,
                         .kind = RowKind::kPrompt});
  }
  TRY_STATUS(m.CheckBatch(rows));
  if (!m.sequences->any_lives()) m.BeginSequence();
  TRY_STATUS(m.sequences->Append(sequence.id(), tokens));
  const Timeline& timeline = *m.sequences->Find(sequence.id());
  Status made = MakeUpCells(m.kv, timeline.cells.Runs(), seed);
  if (!made) {
    m.sequences->CutBack(sequence.id(), 0);
    return made;
  }
  if (timeline.next) std::ranges::fill(m.states.all(*timeline.next), 0.0F);
  m.sequences->Commit(sequence.id());
  return {};
}

Status NativeEngine::Preload() {
  Impl& m = *impl_;
  if (m.memory.n_slots < m.memory.n_experts) {
    return Fail(Errc::kInvalidRequest, "{} slots do not hold all {} experts; raise --ram",
                m.memory.n_slots, m.memory.n_experts);
  }
  const uint32_t layers = m.model.spec.n_expert_layers();
  for (uint16_t l = 0; l < layers; ++l) {
    std::vector<ExpertKey> keys;
    for (uint16_t e = 0; e < m.model.spec.router.n_expert; ++e) {
      keys.push_back({.layer = ExpertLayerId{l}, .expert = {e}});
    }
    LeaseStream leases(*m.residency, keys, Urgency::kDemand);
    leases.Advance();
    CHECK(leases.all_taken());
    m.residency->Drain();
    if (auto error = m.residency->TakeError()) return std::unexpected(*std::move(error));
    m.Report("loading experts", l + 1U, layers);
  }
  return {};
}

Result<double> NativeEngine::ProbeMemoryBandwidth() {
  impl_->residency->Settle();  // nothing may be read into the slots meanwhile
  return ProbeReadBandwidth(*impl_->team, impl_->residency->memory());
}

std::vector<SlotContents> NativeEngine::slot_contents() const {
  std::vector<SlotContents> pools;
  for (uint32_t p = 0; p < impl_->slots.size(); ++p) {
    pools.push_back({.slots = impl_->slots[p],
                     .expert_bytes = impl_->catalog.pools[p].expert_bytes(),
                     .experts = impl_->residency->contents(p)});
  }
  return pools;
}

Result<std::optional<double>> NativeEngine::Impl::FastestStep(const Batch& again) {
  constexpr int kRepeats = 4;
  std::optional<double> best;
  for (int done = 0; done < kRepeats;) {
    PhaseStats once;
    Status status = Repeat(again, once);
    if (!status && status.error().code == Errc::kInterrupted) {
      // A stop that came too late for the tokens before is no reason to fail now; it ends one try.
      TRY_STATUS(Extend(again));
      continue;
    }
    TRY_STATUS(std::move(status));
    ++done;
    if (once.misses == 0) best = std::min(best.value_or(once.seconds), once.seconds);
  }
  return best;
}

Result<std::optional<double>> NativeEngine::ProbeComputeSeconds(
    std::span<Sequence* const> sequences) {
  Impl& m = *impl_;
  Batch again;
  for (const Sequence* sequence : sequences) {
    if (sequence->position() == 0) return std::optional<double>();
    again.rows.push_back({.sequence = sequence->id(),
                          .position = sequence->position() - 1,
                          .token = sequence->tokens().back()});
  }
  if (again.rows.empty() || !m.CanRepeat(again)) return std::optional<double>();
  Result<std::optional<double>> probed = m.ProbeStep(again);
  if (probed || probed.error().code != Errc::kDevice || !m.may_leave_devices()) return probed;
  TRY_STATUS(m.Extend(again));  // what was cut back is computed again with all else
  TRY_STATUS(LeaveDevices(probed.error()));
  return std::optional<double>();
}

Result<std::optional<double>> NativeEngine::Impl::ProbeStep(Batch again) {
  std::optional<double> few = 0.0;
  double share = 1.0;  // of the steps, with all experts
  if (little.is_on()) {
    again.little = little;
    TRY(few, FastestStep(again));
    again.little = {};
    share = stats.little.fallback_share();
  }
  TRY(const std::optional<double> big, FastestStep(again));
  if (!few || !big) return std::optional<double>();
  return *few + share * *big;
}

}  // namespace moestro
