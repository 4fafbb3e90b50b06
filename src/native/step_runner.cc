// SPDX-License-Identifier: MIT
#include "native/step_runner.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include "forward/dense/made_up_cells.h"
#include "native/batch_check.h"

namespace moestro {

Batch PromptOf(SequenceId sequence, std::span<const Token> tokens) {
  Batch batch;
  for (const Token token : tokens) {
    batch.rows.push_back({.sequence = sequence,
                          .position = static_cast<uint32_t>(batch.size()),
                          .token = token,
                          .kind = RowKind::kPrompt});
  }
  return batch;
}

StepRunner::StepRunner(const Parts& parts)
    : parts_(parts),
      plan_(parts.opened.plan),
      spec_(parts.opened.model.spec),
      counter_(
          parts.residency, parts.prefetch.protocol(),
          [&experts = parts.experts] { return experts.wait_seconds(); },
          [&forward = parts.forward] {
            return std::pair(forward.serial().seconds, forward.serial().steps);
          }),
      look_ahead_share_(parts.dense.look_ahead_share()) {}

Status StepRunner::Check(const Batch& batch) const {
  return CheckBatch(batch, parts_.sequences,
                    {.spec = spec_,
                     .n_ctx = plan_.n_ctx,
                     .chunk = plan_.chunk,
                     .has_low = parts_.opened.catalog.has_low()});
}

Status StepRunner::Extend(const Batch& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchRow& row = batch.rows[i];
    const Status extended = parts_.sequences.Append(row.sequence, {&row.token, 1});
    if (extended && row.is_kept) parts_.sequences.KeepInStep(row.sequence);
    if (extended) continue;
    CutBack({.rows = {batch.rows.begin(), batch.rows.begin() + static_cast<std::ptrdiff_t>(i)}});
    return extended;
  }
  return {};
}

void StepRunner::CutBack(const Batch& batch) {
  for (const BatchRow& row : std::views::reverse(batch.rows)) {
    parts_.sequences.CutBack(row.sequence, row.position);
  }
}

Status StepRunner::Counted(PhaseStats& phase, const std::function<Status()>& work) {
  return counter_.Count(phase, [&] {
    Status status = work();
    if (!status) {
      parts_.prefetch.protocol().Clear();
      parts_.residency.Abandon();
      if (status.error().code == Errc::kInterrupted) parts_.stop.Take();
    }
    return status;
  });
}

Status StepRunner::Finish(const Batch& batch, PhaseStats& phase,
                          const std::function<Status()>& compute) {
  Status status = Counted(phase, compute);
  if (status) {
    for (const BatchRow& row : batch.rows) parts_.sequences.Commit(row.sequence);
  } else {
    CutBack(batch);  // the content of the rows' cells is undefined
  }
  return status;
}

Status StepRunner::Compute(const Batch& batch, const LogitsSink& sink, const Interlude& interlude) {
  LayerProtocol& protocol = parts_.prefetch.protocol();
  PrefetchPlanner& planner = parts_.prefetch.planner();
  const Clock& clock = parts_.opened.options.clock;
  const ExpertCounts before = parts_.residency.stats();
  const double dense_before = parts_.dense.graph().seconds();
  const double start = clock();
  protocol.BeginStep(batch.little);
  if (!batch.foreseen.empty() && plan_.look_ahead > 0) {
    const size_t experts_of_rows = batch.foreseen.front().size();
    protocol.Foresee(batch.foreseen, static_cast<uint32_t>(experts_of_rows / spec_.router.n_used));
  }
  const bool looks_ahead = planner.look_ahead() > 0;
  for (size_t first = 0, n = 0; first < batch.size(); first += n) {
    n = RowsTogether(batch, first);
    TRY_STATUS(ComputeChunk(batch, first, n, interlude));
    TRY_STATUS(Heads(batch, first, n, sink));
    // Windows of the last rows stay: LittleFirst may compute these rows again, with all experts.
    const bool is_last = first + n == batch.size();
    if (!is_last) TrimWindows(std::span(batch.rows).subspan(first, n));
  }
  if (!batch.has_decode_rows()) return {};
  const ExpertCounts did = parts_.residency.stats() - before;
  const double dense_seconds = parts_.dense.graph().seconds() - dense_before;
  planner.StepDone({.seconds = clock() - start,
                    .demand_seconds = did.demand_seconds,
                    .demand_reads = did.misses,
                    .look_ahead_seconds = looks_ahead ? dense_seconds * look_ahead_share_ : 0,
                    .dense_seconds = dense_seconds});
  return {};
}

StepRunner::Runs StepRunner::RunsOf(SequenceId sequence) const {
  const Timeline& timeline = *parts_.sequences.Find(sequence);
  return {.all = timeline.cells.Runs(), .recent = timeline.recent.now.Runs()};
}

StepRow StepRunner::RowOf(const BatchRow& row, const Runs& runs) const {
  const Timeline& timeline = *parts_.sequences.Find(row.sequence);
  const auto [from, to] = parts_.sequences.PlacesOf(row.sequence, row.position);
  StepRow step{.token = row.token,
               .position = row.position,
               .cell = timeline.cells.cell(row.position),
               .visible = {.runs = runs.all, .n_positions = row.position + 1},
               .state = {.from = from, .to = to},
               .sequence = row.sequence};
  if (spec_.encoder) Divide(timeline, step);
  if (plan_.recent.window == 0) return step;
  const KvTimeline& recent = timeline.recent.now;
  step.recent_cell = recent.cell(row.position);
  step.recent = {.runs = runs.recent, .n_positions = row.position + 1, .first = recent.begin()};
  return step;
}

// Divides the positions that a row attends to, in a sequence with a source: a row of the source
// attends to the whole source, a row of the target to the source and to earlier rows of the target.
void StepRunner::Divide(const Timeline& timeline, StepRow& row) const {
  const uint32_t n_source = SourceLength(timeline.tokens, spec_.encoder->source_end);
  row.visible.at = row.position;
  row.is_source = row.position < n_source;
  if (row.is_source) {
    row.visible.n_positions = n_source;
    return;
  }
  row.source = {.runs = row.visible.runs, .n_positions = n_source};
  row.visible.begin = n_source;
}

// The number of rows from `first` on that are computed together: a chunk. For a model with an
// encoder: whole sources alone, or rows of targets alone.
size_t StepRunner::RowsTogether(const Batch& batch, size_t first) const {
  const size_t n = std::min<size_t>(plan_.chunk, batch.size() - first);
  if (!spec_.encoder) return n;
  const auto is_source = [&](size_t i) {
    const BatchRow& row = batch.rows[i];
    const auto& tokens = parts_.sequences.Find(row.sequence)->tokens;
    return row.position < SourceLength(tokens, spec_.encoder->source_end);
  };
  const bool begins_with_source = is_source(first);
  size_t together = 0;
  for (size_t i = 0; i < n && is_source(first + i) == begins_with_source; ++i) {
    const bool ends =
        !begins_with_source || batch.rows[first + i].token == spec_.encoder->source_end;
    if (ends) together = i + 1;
  }
  return together;
}

Status StepRunner::Advance(std::span<const BatchRow> rows) {
  if (plan_.recent.window == 0) return {};
  std::map<SequenceId, uint32_t> lengths;
  for (const BatchRow& row : rows) lengths[row.sequence] = row.position + 1;
  for (const auto& [sequence, n] : lengths) TRY_STATUS(parts_.sequences.Advance(sequence, n));
  return {};
}

// Trims the windows of the rows' sequences: a sequence without rows in the next chunk would hold
// all recent cells until the step ends.
void StepRunner::TrimWindows(std::span<const BatchRow> rows) {
  if (plan_.recent.window == 0) return;
  std::set<SequenceId> trimmed;
  for (const BatchRow& row : rows) {
    if (trimmed.insert(row.sequence).second) parts_.sequences.TrimWindow(row.sequence);
  }
}

// Computes rows [first, first + n) through all layers.
Status StepRunner::ComputeChunk(const Batch& batch, size_t first, size_t n,
                                const Interlude& interlude) {
  const auto part = std::span(batch.rows).subspan(first, n);
  TRY_STATUS(Advance(part));
  std::map<SequenceId, Runs> runs;
  std::vector<StepRow> rows;
  std::vector<RowKind> kinds;
  for (const BatchRow& row : part) {
    auto visible = runs.find(row.sequence);
    if (visible == runs.end()) {
      visible = runs.emplace(row.sequence, RunsOf(row.sequence)).first;
    }
    rows.push_back(RowOf(row, visible->second));
    kinds.push_back(row.kind);
  }
  counter_.AddDense(parts_.dense.ReadBy(part));
  const bool is_prompt = !std::ranges::contains(kinds, RowKind::kDecode);
  const auto layer_begins = [&](uint32_t layers_done) {
    if (is_prompt) parts_.report("prefill", layers_done, spec_.n_layer());
    return LookAtFiles();
  };
  return parts_.forward.Step(
      rows, kinds, batch.little,
      {.layer_begins = layer_begins,
       .interlude = is_prompt ? Between(interlude, batch.little) : Interlude{}});
}

// Checks the files once a second. A change ends this step and all later ones.
Status StepRunner::LookAtFiles() {
  Status looked = parts_.watch.LookNowAndThen();
  if (!looked) parts_.closed = looked.error();
  return looked;
}

// The interlude between the layers of a prompt; empty where steps cannot be interrupted: rows on a
// device, or a step within an interlude.
Interlude StepRunner::Between(const Interlude& wanted, const LittleStep& rest) {
  const bool may_be = wanted.is_due && aside_ == nullptr && !parts_.dense.is_on_device();
  if (!may_be) return {};
  return {.is_due = wanted.is_due,
          .run = [this, &wanted, &rest] { return StepAside(wanted, rest); },
          .most_rows = wanted.most_rows};
}

// Runs the interlude, whose work is not counted in this step. A stop request is for the prompt,
// which goes on afterwards, so the request is held.
Status StepRunner::StepAside(const Interlude& interlude, const LittleStep& rest) {
  aside_ = &interlude;
  const Status ran = counter_.Aside([&] {
    const StopSignal::Hold hold(parts_.stop);
    return interlude.run();
  });
  aside_ = nullptr;
  parts_.prefetch.protocol().BeginStep(rest);
  return ran;
}

// Final norm and output matrix for the rows that want logits, neighbours together.
Status StepRunner::Heads(const Batch& batch, size_t first, size_t n, const LogitsSink& sink) {
  for (size_t at = 0; at < n;) {
    uint32_t together = 0;
    while (together < plan_.logits_rows && at + together < n &&
           batch.rows[first + at + together].wants_logits) {
      ++together;
    }
    if (together == 0) {
      ++at;
      continue;
    }
    TRY_STATUS(parts_.dense.graph().Head(static_cast<uint32_t>(at), together));
    for (uint32_t i = 0; i < together && sink; ++i) {
      const float* logits = parts_.dense.buffers().logits() + size_t{i} * spec_.n_vocab;
      sink(first + at + i, {logits, spec_.n_vocab});
    }
    at += together;
  }
  return {};
}

bool StepRunner::CanRepeat(const Batch& last) const {
  return std::ranges::all_of(last.rows, [this](const BatchRow& row) {
    return parts_.sequences.Reach(row.sequence, row.position) == row.position;
  });
}

Status StepRunner::Repeat(const Batch& last, PhaseStats& phase) {
  CutBack(last);
  TRY_STATUS(Extend(last));
  return Finish(last, phase, [&] { return Compute(last, {}); });
}

Status StepRunner::MakeUp(SequenceId id, std::span<const Token> tokens, uint64_t seed) {
  SequenceTable& sequences = parts_.sequences;
  TRY_STATUS(sequences.Append(id, tokens));
  const Timeline& timeline = *sequences.Find(id);
  Status made = sequences.FillWindow(id);
  const Runs runs = RunsOf(id);
  if (made) made = MakeUpCells(parts_.dense.kv(), runs.all, runs.recent, seed);
  if (!made) {
    sequences.CutBack(id, 0);
    return made;
  }
  if (timeline.next) std::ranges::fill(parts_.dense.states().all(*timeline.next), 0.0F);
  sequences.Commit(id);
  return {};
}

Result<size_t> StepRunner::ComputeAllAgain() {
  const StopSignal::Hold hold(parts_.stop);
  SequenceTable& sequences = parts_.sequences;
  size_t tokens = 0;
  for (const SequenceId id : sequences.ids()) {
    const Batch batch = PromptOf(id, sequences.Find(id)->tokens);
    tokens += batch.size();
    if (batch.rows.empty()) continue;
    TRY_STATUS(sequences.Append(id, {}));  // takes a place for the state
    PhaseStats not_counted;
    const Status computed = Counted(not_counted, [&] { return Compute(batch, {}); });
    if (!computed) {
      sequences.LoseStates();  // the texts computed so far are lost, too
      return std::unexpected(computed.error());
    }
    sequences.Commit(id);
  }
  return tokens;
}

}  // namespace moestro
