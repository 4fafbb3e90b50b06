// SPDX-License-Identifier: MIT
#include "native/step_runner.h"

#include <algorithm>
#include <set>
#include <utility>

#include "forward/dense/dense_probes.h"

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

StepRunner::StepRunner(const OpenedModel& opened, SequenceTable& sequences, DenseModel& dense,
                       Forward& forward, StepFrame& frame)
    : opened_(opened),
      plan_(opened.plan),
      spec_(opened.model.spec),
      sequences_(sequences),
      dense_(dense),
      forward_(forward),
      frame_(frame),
      look_ahead_share_(dense.look_ahead_share()) {}

Status StepRunner::Check(const Batch& batch) const {
  TRY_STATUS(CheckSources(batch));
  const bool has_prompt = std::ranges::contains(batch.rows, RowKind::kPrompt, &BatchRow::kind);
  if (has_prompt && !batch.foreseen.empty()) {
    return Fail(Errc::kInvalidRequest, "rows of a prompt are not foreseen");
  }
  TRY_STATUS(CheckForeseen(batch));
  if (!batch.little.is_on()) return {};
  if (batch.little.n_used >= spec_.router.n_used) {
    return Fail(Errc::kInvalidRequest, "a little step uses fewer than {} experts, not {}",
                spec_.router.n_used, batch.little.n_used);
  }
  if (batch.little.misses == Misses::kLow && !opened_.catalog.has_low()) {
    return Fail(Errc::kInvalidRequest, "there are no low copies for a little step's misses");
  }
  if (has_prompt) return Fail(Errc::kInvalidRequest, "rows of a prompt use all experts");
  return {};
}

Status StepRunner::CheckForeseen(const Batch& batch) const {
  if (batch.foreseen.empty()) return {};
  const RouterSpec& router = spec_.router;
  const size_t n = batch.foreseen.front().size();
  bool is_whole = batch.foreseen.size() == spec_.n_main_expert_layers() && n > 0 &&
                  n % router.n_used == 0 && n / router.n_used <= batch.size();
  for (const std::vector<ExpertId>& of_layer : batch.foreseen) {
    is_whole = is_whole && of_layer.size() == n &&
               std::ranges::all_of(of_layer, [&](ExpertId e) { return e.value < router.n_expert; });
  }
  if (is_whole) return {};
  return Fail(Errc::kInvalidRequest,
              "what is foreseen has not the shape of the model and the rows");
}

// Checks the rows of sources, for a model with an encoder. A sequence that has tokens has a source.
Status StepRunner::CheckSources(const Batch& batch) const {
  if (!spec_.encoder) return {};
  const Token end = spec_.encoder->source_end;
  size_t begin = 0;  // where the open source begins
  bool is_open = false;
  for (size_t i = 0; i < batch.size(); ++i) {
    const BatchRow& row = batch.rows[i];
    const bool begins = row.position == 0 && sequences_.Find(row.sequence)->tokens.empty();
    if (!is_open && !begins) continue;
    if (is_open && (begins || row.sequence != batch.rows[begin].sequence)) break;
    if (begins) begin = i;
    is_open = row.token != end;
    if (row.wants_logits || row.is_kept || row.kind == RowKind::kDecode) {
      return Fail(Errc::kInvalidRequest, "rows of a source give no logits and are not kept");
    }
    if (i - begin + 1 > plan_.chunk) {
      return Fail(
          Errc::kInvalidRequest,
          "the encoder takes {} tokens at a time, and the text has more; --chunk takes more",
          plan_.chunk);
    }
  }
  if (!is_open) return {};
  return Fail(Errc::kInvalidRequest,
              "the text for the encoder must be in one step and end with token {}", end);
}

// The pieces of a prompt's step: a layer of a chunk each, with the chunk's logits in its last one.
class StepRunner::Pieces final : public StepPieces {
 public:
  Pieces(StepRunner& runner, const Batch& batch, LogitsSink sink)
      : runner_(runner), batch_(batch), sink_(std::move(sink)) {}

  Result<bool> Advance() override {
    if (std::exchange(begins_, false)) runner_.frame_.BeginStep(batch_.little);
    if (!chunk_) {
      TRY(chunk_, runner_.BeginChunk(batch_, first_));
    }
    TRY(const bool is_through, runner_.forward_.Advance(*chunk_->pass));
    if (!is_through) return false;
    TRY_STATUS(runner_.EndChunk(batch_, *chunk_, sink_));
    first_ += chunk_->n;
    chunk_.reset();
    return first_ == batch_.size();
  }
  Status MakeWay(size_t n_rows) override {
    begins_ = true;
    return chunk_ ? runner_.forward_.MakeWay(*chunk_->pass, n_rows) : Status();
  }

 private:
  StepRunner& runner_;
  const Batch& batch_;
  const LogitsSink sink_;
  size_t first_ = 0;  // row of the chunk
  std::unique_ptr<Chunk> chunk_;
  bool begins_ = true;  // the decisions are those of another step
};

std::unique_ptr<StepPieces> StepRunner::PiecesOf(const Batch& batch, LogitsSink sink) {
  if (batch.has_decode_rows() || dense_.is_on_device()) return nullptr;
  return std::make_unique<Pieces>(*this, batch, std::move(sink));
}

Status StepRunner::Compute(const Batch& batch, const LogitsSink& sink) {
  const double dense_before = dense_.graph().seconds();
  const StepFrame::StepBegin begin = frame_.BeginStep(batch.little);
  if (!batch.foreseen.empty() && plan_.look_ahead > 0) {
    const size_t experts_of_rows = batch.foreseen.front().size();
    frame_.decisions().protocol().Foresee(
        batch.foreseen, static_cast<uint32_t>(experts_of_rows / spec_.router.n_used));
  }
  const bool looks_ahead = frame_.decisions().planner().look_ahead() > 0;
  for (size_t first = 0; first < batch.size();) {
    TRY(const std::unique_ptr<Chunk> chunk, BeginChunk(batch, first));
    TRY_STATUS(forward_.Finish(*chunk->pass));
    TRY_STATUS(EndChunk(batch, *chunk, sink));
    first += chunk->n;
  }
  if (!batch.has_decode_rows()) return {};
  const double dense_seconds = dense_.graph().seconds() - dense_before;
  frame_.StepDone(begin, batch.rows, looks_ahead ? dense_seconds * look_ahead_share_ : 0,
                  dense_seconds);
  return {};
}

StepRunner::Runs StepRunner::RunsOf(SequenceId sequence) const {
  const Timeline& timeline = *sequences_.Find(sequence);
  return {.all = timeline.cells.Runs(), .recent = timeline.recent.now.Runs()};
}

StepRow StepRunner::RowOf(const BatchRow& row, const Runs& runs) const {
  const Timeline& timeline = *sequences_.Find(row.sequence);
  const auto [from, to] = sequences_.PlacesOf(row.sequence, row.position);
  StepRow step{.token = row.token,
               .position = row.position,
               .cell = timeline.cells.cell(row.position),
               .visible = {.runs = runs.all, .n_positions = row.position + 1},
               .state = {.from = from, .to = to},
               .sequence = row.sequence};
  if (spec_.encoder) Divide(timeline, step);
  if (spec_.ngrams) step.text = std::span(timeline.tokens).first(row.position + 1);
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
    const auto& tokens = sequences_.Find(row.sequence)->tokens;
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
  for (const auto& [sequence, n] : lengths) TRY_STATUS(sequences_.Advance(sequence, n));
  return {};
}

// Trims the windows of the rows' sequences: a sequence without rows in the next chunk would hold
// all recent cells until the step ends.
void StepRunner::TrimWindows(std::span<const BatchRow> rows) {
  if (plan_.recent.window == 0) return;
  std::set<SequenceId> trimmed;
  for (const BatchRow& row : rows) {
    if (trimmed.insert(row.sequence).second) sequences_.TrimWindow(row.sequence);
  }
}

// Begins the chunk from row `first` on.
Result<std::unique_ptr<StepRunner::Chunk>> StepRunner::BeginChunk(const Batch& batch,
                                                                  size_t first) {
  auto chunk = std::make_unique<Chunk>(Chunk{.first = first, .n = RowsTogether(batch, first)});
  const auto part = std::span(batch.rows).subspan(first, chunk->n);
  TRY_STATUS(Advance(part));
  for (const BatchRow& row : part) {
    auto visible = chunk->runs.find(row.sequence);
    if (visible == chunk->runs.end()) {
      visible = chunk->runs.emplace(row.sequence, RunsOf(row.sequence)).first;
    }
    chunk->rows.push_back(RowOf(row, visible->second));
    chunk->kinds.push_back(row.kind);
  }
  frame_.AddDense(dense_.ReadBy(part));
  const bool is_prompt = !std::ranges::contains(chunk->kinds, RowKind::kDecode);
  const auto layer_begins = [this, is_prompt](uint32_t layers_done) {
    if (is_prompt) frame_.state().report("prefill", layers_done, spec_.n_main_layer());
    return frame_.LookAtFiles();
  };
  TRY(Forward::Pass pass,
      forward_.Begin(chunk->rows, chunk->kinds, batch.little, layer_begins, NextHead(part, 0)));
  chunk->pass.emplace(std::move(pass));
  return chunk;
}

// Gives the logits of a chunk whose layers have run.
Status StepRunner::EndChunk(const Batch& batch, const Chunk& chunk, const LogitsSink& sink) {
  TRY_STATUS(Heads(batch, chunk.first, chunk.n, sink));
  if (spec_.predicts()) {
    // Logits are given away: the step has ended for its texts, and a stop ends the next one.
    const StopSignal::Hold hold(frame_.state().stop);
    TRY_STATUS(forward_.Follow(chunk.rows));
  }
  // Windows of the last rows stay: LittleFirst may compute these rows again, with all experts.
  const bool is_last = chunk.first + chunk.n == batch.size();
  if (!is_last) TrimWindows(std::span(batch.rows).subspan(chunk.first, chunk.n));
  return {};
}

// The next neighbours from row `at` of a chunk on that want logits, as many as come together; count
// 0: no row has logits. rows: of the chunk.
StepRows StepRunner::NextHead(std::span<const BatchRow> rows, size_t at) const {
  while (at < rows.size() && !rows[at].wants_logits) ++at;
  StepRows head{.first = static_cast<uint32_t>(at)};
  while (head.count < plan_.logits_rows && at + head.count < rows.size() &&
         rows[at + head.count].wants_logits) {
    ++head.count;
  }
  return head;
}

// Final norm and output matrix for the rows that want logits, neighbours together.
Status StepRunner::Heads(const Batch& batch, size_t first, size_t n, const LogitsSink& sink) {
  const auto rows = std::span(batch.rows).subspan(first, n);
  for (StepRows head = NextHead(rows, 0); head.count > 0;
       head = NextHead(rows, head.first + head.count)) {
    TRY_STATUS(dense_.graph().Head(head.first, head.count));
    for (uint32_t i = 0; i < head.count && sink; ++i) {
      const float* logits = dense_.buffers().logits() + size_t{i} * spec_.n_vocab;
      sink(first + head.first + i, {logits, spec_.n_vocab});
    }
  }
  return {};
}

Status StepRunner::MakeUp(SequenceId id, std::span<const Token> tokens, uint64_t seed) {
  TRY_STATUS(sequences_.Append(id, tokens));
  const Timeline& timeline = *sequences_.Find(id);
  Status made = sequences_.FillWindows(id, {});
  const Runs runs = RunsOf(id);
  if (made) made = MakeUpCells(dense_.kv(), runs.all, runs.recent, seed);
  if (!made) {
    sequences_.CutBack(id, 0);
    return made;
  }
  if (timeline.next) std::ranges::fill(dense_.states().all(*timeline.next), 0.0F);
  sequences_.Commit(id);
  return {};
}

Result<std::vector<Token>> StepRunner::Predict(std::span<const BatchRow> rows) {
  frame_.BeginStep({});
  std::vector<Token> drafted;
  for (BatchRow row : rows) {
    TRY_STATUS(Advance({&row, 1}));
    if (!drafted.empty()) row.token = drafted.back();
    const Runs runs = RunsOf(row.sequence);
    TRY(const Token next, forward_.PredictNext(RowOf(row, runs), drafted.empty()));
    drafted.push_back(next);
  }
  return drafted;
}

Result<size_t> StepRunner::ComputeAllAgain() {
  const StopSignal::Hold hold(frame_.state().stop);
  size_t tokens = 0;
  for (const SequenceId id : sequences_.ids()) {
    const Batch batch = PromptOf(id, sequences_.Find(id)->tokens);
    tokens += batch.size();
    if (batch.rows.empty()) continue;
    TRY_STATUS(sequences_.Append(id, {}));  // takes a place for the state
    PhaseStats not_counted;
    const StepFrame::Phase phase(frame_, not_counted);
    const Status computed = phase.End(Compute(batch, {}));
    if (!computed) {
      sequences_.LoseStates();  // the texts computed so far are lost, too
      return std::unexpected(computed.error());
    }
    sequences_.Commit(id);
  }
  return tokens;
}

}  // namespace moestro
