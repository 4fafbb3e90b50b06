// SPDX-License-Identifier: MIT
#include "offline/fit/fit_bench.h"

#include <cmath>
#include <utility>

#include "base/work_limit.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "offline/eval/eval.h"
#include "text/divergence.h"

namespace moestro {
namespace {

constexpr size_t kFewestWindows = 4;  // two of each kind, so that errors can be estimated
constexpr size_t kFewestToCheck = 8;

// Adds a step of the base run to the experts' uses.
void AddUse(const SeenExperts& seen, size_t per_layer, size_t n_ff, std::vector<bool>& in_window,
            ExpertUse& use) {
  const LayerPlan& plan = seen.plan;
  std::vector<double> weight(plan.row_of.size());
  for (size_t i = 0; i < plan.pair_of.size(); ++i) {
    if (plan.pair_of[i] != kNoPair) weight[plan.pair_of[i]] = double{plan.weights[i]};
  }
  for (const PlannedExpert& expert : plan.experts) {
    const size_t at = plan.layer.value * per_layer + expert.key.expert.value;
    in_window[at] = true;
    use.tokens[at] += expert.n_pairs;
    for (uint32_t p = expert.first_pair; p < expert.first_pair + expert.n_pairs; ++p) {
      double squares = 0.0;
      for (const float v : seen.products.subspan(p * n_ff, n_ff)) squares += double{v} * double{v};
      use.popularity_norm[at] += weight[p] * std::sqrt(squares);
    }
  }
}

}  // namespace

uint64_t FitText::tokens_of(std::span<const uint32_t> windows) const {
  uint64_t n = 0;
  for (const uint32_t w : windows) n += text.windows[w].n_evaluated();
  return n;
}

uint64_t FitText::first_row(uint32_t window) const {
  uint64_t row = 0;
  for (uint32_t w = 0; w < window; ++w) row += text.windows[w].n_evaluated();
  return row;
}

Result<FitText> ReadFitText(const ModelFile& model, const TextRequest& request,
                            const EngineOptions& options) {
  FitText fit;
  TRY(fit.text, ReadEvalText({.gguf = model.gguf,
                              .n_ctx_train = model.spec.n_ctx_train,
                              .n_vocab = model.spec.n_vocab,
                              .encoder = model.spec.encoder},
                             request, options));
  if (fit.text.windows.size() < kFewestWindows) {
    return Fail(Errc::kInvalidRequest,
                "{}: {} windows of {} tokens, at least {} are needed; give a longer text, more "
                "--tokens or a smaller --window",
                request.paths.front(), fit.text.windows.size(), fit.text.n_ctx, kFewestWindows);
  }
  const bool has_check = fit.text.windows.size() >= kFewestToCheck;
  for (uint32_t w = 0; w < fit.text.windows.size(); ++w) {
    auto& part = w % 2 == 0 ? fit.calibration : has_check && w % 4 == 3 ? fit.check : fit.held_out;
    part.push_back(w);
  }
  return fit;
}

FitBench::FitBench(std::unique_ptr<NativeEngine> engine, const FitText& text, Progress progress)
    : engine_(std::move(engine)),
      text_(&text),
      progress_(std::move(progress)),
      per_layer_(engine_->spec().router.n_expert),
      n_experts_(size_t{engine_->spec().n_expert_layers()} * per_layer_) {}

Result<FitBench> FitBench::Open(const FitBenchOptions& options, const FitText& text) {
  EngineOptions engine_options = ExactOf(options.engine);
  engine_options.low = options.low;
  engine_options.low_share = options.low_share;
  engine_options.lossy = {.t1 = 1.0, .t2 = 1.0};  // only the bench decides which copy runs
  engine_options.prefetch = 0;                    // prefetch would read the planned copy
  engine_options.caller_bytes += 3 * uint64_t{text.text.n_vocab} * sizeof(float);
  TRY(std::unique_ptr<NativeEngine> engine,
      NativeEngine::Open(options.model, engine_options, options.progress));
  FitBench bench(std::move(engine), text, options.progress);
  bench.first_window_ = options.first_window;
  return bench;
}

Status FitBench::Read(std::span<const uint32_t> windows, const char* what,
                      const std::function<void(size_t window)>& begin,
                      const std::function<Status(std::span<const float> row, Token next)>& take) {
  Sequence sequence = engine_->NewSequence();
  std::vector<float> row(text_->text.n_vocab);
  const double start = SteadySeconds();
  for (size_t w = 0; w < windows.size(); ++w) {
    const EvalText::Window& window = text_->text.windows[windows[w]];
    const auto tokens = text_->text.tokens_of(window);
    sequence.CutBack(0);
    begin(w);
    Status status;
    const auto sink = [&](size_t i, std::span<const float> logits) {
      if (!status) return;
      LogSoftmax(logits, row);
      status = take(row, tokens[i + 1]);
    };
    Batch batch = RowsOf(sequence, tokens.first(tokens.size() - 1), RowKind::kPrompt, true);
    for (size_t i = 0; i < window.first; ++i) batch.rows[i].wants_logits = false;
    TRY_STATUS(engine_->Step(batch, sink));
    TRY_STATUS(std::move(status));
    evaluated_ += tokens.size() - 1;
    if (progress_) progress_(what, w + 1, windows.size());
    if (w > 0 || !first_window_) continue;
    std::exchange(first_window_,
                  {})(static_cast<double>(tokens.size() - 1) / (SteadySeconds() - start));
  }
  return {};
}

Status FitBench::WriteReference(const ReferenceInfo& info, const std::string& path) {
  TRY(ReferenceWriter writer, ReferenceWriter::Create(path, info));
  std::vector<uint32_t> all;
  for (uint32_t w = 0; w < text_->text.windows.size(); ++w) all.push_back(w);
  TRY_STATUS(Read(
      all, "exact run", [](size_t) {},
      [&](std::span<const float> row, Token) { return writer.Add(row); }));
  return writer.Finish();
}

Result<std::vector<BlockLoss>> FitBench::Measure(std::span<const uint32_t> windows,
                                                 const std::vector<bool>& is_low,
                                                 ReferenceReader& reference) {
  engine_->SetCopyOverride([&](ExpertKey own) -> CopyId {
    return is_low[size_t{own.layer.value} * per_layer_ + own.expert.value] ? kLowCopy : own.copy;
  });
  std::vector<BlockLoss> blocks;
  uint64_t at = 0;
  const Status status = Read(
      windows, "evaluate",
      [&](size_t window) {
        at = text_->first_row(windows[window]);
        blocks.emplace_back();
      },
      [&](std::span<const float> row, Token next) -> Status {
        TRY(const std::span<const float> exact, reference.Row(at++));
        if (blocks.back().tokens >= double{kBlockTokens}) blocks.emplace_back();
        BlockLoss& block = blocks.back();
        block.tokens += 1.0;
        block.kl += Divergence(exact, row);
        const auto token = static_cast<size_t>(next);
        block.nll += double{exact[token]} - double{row[token]};
        return {};
      });
  engine_->SetCopyOverride({});
  TRY_STATUS(status);
  return blocks;
}

Result<std::vector<BlockLoss>> FitBench::Observe(ReferenceReader& reference, ExpertUse& use) {
  use = {.tokens = std::vector<uint64_t>(n_experts_),
         .popularity_norm = std::vector<double>(n_experts_),
         .in_window = {}};
  const std::vector<uint32_t> n_ff = engine_->spec().expert_widths();
  std::vector<BlockLoss> blocks;
  Status status;
  for (const uint32_t& window : text_->calibration) {
    use.in_window.emplace_back(n_experts_);
    engine_->SetExpertObserver([&](const SeenExperts& seen) {
      AddUse(seen, per_layer_, n_ff[seen.plan.layer.value], use.in_window.back(), use);
    });
    auto measured = Measure({&window, 1}, std::vector<bool>(n_experts_), reference);
    if (!measured) {
      status = std::unexpected(measured.error());
      break;
    }
    blocks.append_range(*measured);
  }
  engine_->SetExpertObserver({});
  TRY_STATUS(std::move(status));
  return blocks;
}

}  // namespace moestro
