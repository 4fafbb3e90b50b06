// SPDX-License-Identifier: MIT
#include "offline/fit/fit_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "base/input_file.h"
#include "base/text.h"
#include "model/expert_tensors.h"
#include "native/find_weights.h"
#include "offline/fit/fit_bench.h"
#include "offline/fit/fit_order.h"
#include "offline/fit/fit_state.h"
#include "offline/gguf_output.h"
#include "offline/record/imatrix_file.h"

namespace moestro {
namespace {

class FitSearch {
 public:
  explicit FitSearch(const FitRequest& request) : request_(request) {}

  Result<FitReport> Run();

 private:
  Status Prepare();
  Status PrepareScratch(const ModelFile& model);
  Status MeasureUniform();
  Status Rank();
  Status Observe();
  Status MeasureImportance(uint32_t expert);
  Status MeasureImportances(std::span<const uint32_t> experts, double most_seconds);
  Result<std::vector<double>> Estimates();
  void OrderByMeasured();
  void NoteMeasuring(size_t experts, double seconds) const;
  Status SearchMoved();
  Result<Estimate> LossWith(uint64_t moved, std::span<const uint32_t> windows);
  Status Check();
  Status Write();

  Result<FitBench*> BenchOf(const SizedWidth& high, const SizedWidth& low);
  void CloseBench();
  Status OpenReference();  // the exact run's rows, from an earlier search if it left them
  void NoteTime(double tokens_per_second);
  void Note(const std::string& text) const {
    if (request_.note) request_.note(text);
  }
  size_t n_experts() const { return size_t{report_.layers} * report_.experts; }
  Estimate LossOf(std::span<const BlockLoss> blocks) const;
  std::string WidthsWith(uint64_t moved) const;

  const FitRequest& request_;
  FitReport report_;
  FitText text_;
  ReferenceInfo info_;
  std::optional<FitScratch> scratch_;
  std::optional<FitState> state_;
  std::optional<ReferenceReader> reference_;
  std::optional<FitBench> bench_;
  std::string bench_is_;
  bool is_time_told_ = false;
  SizedWidth high_;
  SizedWidth low_;
  ExpertUse use_;
  std::vector<BlockLoss> base_;  // of the calibration windows, none of the experts lower
  std::vector<uint32_t> order_;  // the least important first
};

Status FitSearch::Prepare() {
  if (request_.path.empty()) return Fail(Errc::kUsage, "no output file named");
  TRY_STATUS(CheckMayWrite(request_.path, request_.overwrite));
  TRY(const ModelFile model, ModelFile::Open(request_.model));
  TRY_STATUS(CheckIsNotFitted(model.weights.fit, request_.model, "fit"));
  OutputPath path = request_.path;
  path.Spare(model.gguf.paths());
  TRY_STATUS(path.Check());
  report_.layers = model.spec.n_expert_layers();
  report_.experts = model.spec.router.n_expert;
  TRY(const auto widths, PlanWidths(model, request_.widths));
  for (const SizedWidth& width : widths) report_.uniform.push_back({.width = width, .loss = {}});
  report_.uniform.front().loss = Estimate{.value = 0.0, .error = 0.0};
  report_.source_bytes = widths.front().bytes;
  TRY(text_, ReadFitText(model, request_.text, request_.engine));
  report_.calibration_tokens = text_.tokens_of(text_.calibration);
  report_.held_out_tokens = text_.tokens_of(text_.held_out);
  report_.checked_tokens = text_.tokens_of(text_.check);
  return PrepareScratch(model);
}

Status FitSearch::PrepareScratch(const ModelFile& model) {
  TRY(const std::string folder, ScratchFolder(request_.scratch, request_.text.paths.front()));
  info_ = ReferenceInfo::Of(model, text_.text);
  TRY(info_.weights, FindWeightsId(model, request_.engine.weights_folder));
  std::string key = Format("{:016x}-{:016x}", info_.weights, info_.token_hash);
  if (!request_.imatrix.empty()) {
    TRY(const ImatrixFile imatrix, ImatrixFile::Open(request_.imatrix));
    TRY(const uint64_t hash, imatrix.Hash());
    key += Format("-{:016x}", hash);
  }
  scratch_.emplace(request_, Format("{}/moestro-fit-{}.", folder, key));
  TRY(state_, FitState::Open(scratch_->File("json"), key));
  return {};
}

void FitSearch::CloseBench() {
  if (bench_) report_.evaluated += bench_->evaluated();
  bench_.reset();
}

// Opens a bench. One is open at a time, and stays open while the widths do not change.
Result<FitBench*> FitSearch::BenchOf(const SizedWidth& high, const SizedWidth& low) {
  const std::string is = WidthText(high.width) + " " + WidthText(low.width);
  if (bench_ && bench_is_ == is) return &*bench_;
  CloseBench();
  TRY(const std::string model, scratch_->ModelAt(high.width, n_experts()));
  TRY(const std::string copies, scratch_->CopiesAt(*low.width));
  TRY(bench_, FitBench::Open({.model = model,
                              .low = copies,
                              .low_share = static_cast<double>(low.bytes) /
                                           static_cast<double>(high.bytes + low.bytes),
                              .engine = request_.engine,
                              .progress = request_.progress,
                              .first_window = [this](double rate) { NoteTime(rate); }},
                             text_));
  bench_is_ = is;
  return &*bench_;
}

Status FitSearch::OpenReference() {
  const std::string path = scratch_->File("exact");
  if (IsAbsent(path)) {
    TRY(FitBench* const bench, BenchOf(report_.uniform[0].width, report_.uniform[1].width));
    TRY_STATUS(bench->WriteReference(info_, path));
  }
  TRY(ReferenceReader reader, ReferenceReader::Open(path, info_));
  reference_.emplace(std::move(reader));
  return {};
}

void FitSearch::NoteTime(double tokens_per_second) {
  if (std::exchange(is_time_told_, true)) return;
  const bool is_direct = n_experts() <= request_.measure_most;
  const size_t measured = is_direct ? n_experts() : std::min(kFitSample, n_experts());
  const double held_out = static_cast<double>(report_.uniform.size()) +
                          std::ceil(std::log2(static_cast<double>(n_experts())));
  const double tokens =
      static_cast<double>(text_.text.n_evaluated()) +
      static_cast<double>(measured + 1) * static_cast<double>(report_.calibration_tokens) +
      held_out * static_cast<double>(report_.held_out_tokens);
  const std::string text =
      Format("at most {:.1f} min: {:.0f} tokens at {:.0f} a second, {} of {} experts measured",
             tokens / tokens_per_second / 60.0, tokens, tokens_per_second, measured, n_experts());
  const std::string more =
      Format("; {} min more if these do not bear out the estimate of the others",
             request_.measure_minutes);
  Note(is_direct ? text : text + more);
}

Estimate FitSearch::LossOf(std::span<const BlockLoss> blocks) const {
  const bool is_kl = request_.tolerance.kind == FitTolerance::Kind::kKl;
  std::vector<BlockSum> sums;
  for (const BlockLoss& b : blocks) sums.push_back({b.tokens, is_kl ? b.kl : b.nll});
  Estimate loss = MeanOver(sums);
  if (is_kl) return loss;
  const double ratio = std::exp(loss.value);
  return {.value = ratio - 1.0, .error = ratio * loss.error};
}

// Measures uniform widths from the largest down, until one loses too much.
Status FitSearch::MeasureUniform() {
  high_ = report_.uniform.front().width;
  const std::string kind = request_.tolerance.Text(0.0);
  for (FitReport::Uniform& uniform : std::span(report_.uniform).subspan(1)) {
    const std::string name = Format("all {} {}", WidthText(uniform.width.width), kind);
    uniform.loss = state_->Find(name);
    if (!uniform.loss) {
      TRY(FitBench* const bench, BenchOf(report_.uniform.front().width, uniform.width));
      TRY(const auto blocks,
          bench->Measure(text_.held_out, std::vector<bool>(n_experts(), true), *reference_));
      uniform.loss = LossOf(blocks);
      TRY_STATUS(state_->Add(name, *uniform.loss));
    }
    low_ = uniform.width;
    Note(Format("all experts at {}: {}", WidthText(low_.width),
                request_.tolerance.Text(uniform.loss->value)));
    if (uniform.loss->value > request_.tolerance.most) return {};
    report_.moved = n_experts();
    report_.loss = *uniform.loss;
    if (&uniform != &report_.uniform.back()) high_ = uniform.width;
  }
  return {};
}

Status FitSearch::Observe() {
  TRY(FitBench* const bench, BenchOf(high_, low_));
  TRY(base_, bench->Observe(*reference_, use_));
  report_.popularity_norm = use_.popularity_norm;
  report_.importance.resize(n_experts());
  return {};
}

Status FitSearch::MeasureImportance(uint32_t e) {
  TRY(FitBench* const bench, BenchOf(high_, low_));
  // In a window that never used the expert, its width changes nothing.
  std::vector<BlockSum> sums;
  auto block = base_.begin();
  std::vector<bool> is_low(n_experts());
  is_low[e] = true;
  for (size_t w = 0; w < text_.calibration.size(); ++w) {
    const std::span<const uint32_t> window(&text_.calibration[w], 1);
    std::vector<BlockLoss> lossy;
    if (use_.in_window[w][e]) {
      TRY(lossy, bench->Measure(window, is_low, *reference_));
    }
    const uint64_t tokens = text_.tokens_of(window);
    const size_t blocks = (tokens + kBlockTokens - 1) / kBlockTokens;
    for (size_t b = 0; b < blocks; ++b, ++block) {
      sums.push_back({block->tokens, lossy.empty() ? 0.0 : lossy[b].kl - block->kl});
    }
  }
  report_.importance[e] = MeanOver(sums);
  return {};
}

Status FitSearch::MeasureImportances(std::span<const uint32_t> experts, double most_seconds) {
  const double start = request_.clock();
  for (size_t done = 0; done < experts.size(); ++done) {
    const uint32_t e = experts[done];
    const std::string name = Format("expert {} {}", e, bench_is_);
    report_.importance[e] = state_->Find(name);
    if (report_.importance[e] || request_.clock() - start >= most_seconds) continue;
    if (request_.progress) request_.progress("experts", done, experts.size());
    TRY_STATUS(MeasureImportance(e));
    TRY_STATUS(state_->Add(name, *report_.importance[e]));
  }
  return {};
}

// Experts without a measurement stay at the higher width longest.
void FitSearch::OrderByMeasured() {
  std::vector<Estimate> measured;
  std::vector<double> values;
  for (const auto& importance : report_.importance) {
    if (importance) measured.push_back(*importance);
    values.push_back(importance ? importance->value : std::numeric_limits<double>::infinity());
  }
  report_.noise_share = NoiseShare(measured);
  const bool is_noise = report_.noise_share > kMostNoise;
  report_.ranking = is_noise ? FitRanking::kUse : FitRanking::kMeasured;
  order_ = RisingOrder(is_noise ? use_.popularity_norm : values, use_.popularity_norm);
}

Result<std::vector<double>> FitSearch::Estimates() {
  TRY(const std::string high, scratch_->ModelAt(high_.width, n_experts()));
  TRY(const std::string low, scratch_->CopiesAt(*low_.width));
  TRY(std::vector<double> estimates, WidthErrors(high, low));
  for (size_t e = 0; e < estimates.size(); ++e) estimates[e] *= use_.popularity_norm[e];
  return estimates;
}

// `seconds`: time of the sample.
void FitSearch::NoteMeasuring(size_t experts, double seconds) const {
  const double each = seconds / static_cast<double>(std::min(kFitSample, n_experts()));
  Note(
      Format("the estimate is not believed (rank correlation {:.2f} with what was measured, {} is "
             "asked for): {} experts more are measured, which takes about {:.1f} min and at most "
             "{} (--measure-minutes)",
             *report_.rank_correlation, request_.least_correlation, experts,
             each * static_cast<double>(experts) / 60.0, request_.measure_minutes));
}

Status FitSearch::Rank() {
  constexpr double kForever = std::numeric_limits<double>::infinity();
  const std::vector<uint32_t> all = SpreadOver(report_.layers, report_.experts);
  TRY_STATUS(Observe());
  const bool is_direct = n_experts() <= request_.measure_most;
  const auto sample =
      std::span(all).first(is_direct ? all.size() : std::min(kFitSample, all.size()));
  const double start = request_.clock();
  TRY_STATUS(MeasureImportances(sample, kForever));
  OrderByMeasured();
  if (is_direct) return {};
  TRY(const std::vector<double> estimates, Estimates());
  std::vector<double> values;
  std::vector<double> guesses;
  for (const uint32_t e : sample) {
    values.push_back(report_.importance[e]->value);
    guesses.push_back(estimates[e]);
  }
  report_.rank_correlation = RankCorrelation(values, guesses);
  // Measurements that do not separate experts cannot test the estimate.
  if (report_.ranking == FitRanking::kUse) return {};
  if (*report_.rank_correlation >= request_.least_correlation) {
    report_.ranking = FitRanking::kEstimated;
    order_ = RisingOrder(estimates, use_.popularity_norm);
    return {};
  }
  const auto others = std::span(all).subspan(sample.size());
  NoteMeasuring(others.size(), request_.clock() - start);
  TRY_STATUS(MeasureImportances(others, 60.0 * request_.measure_minutes));
  OrderByMeasured();
  return {};
}

std::string FitSearch::WidthsWith(uint64_t moved) const {
  if (moved == n_experts()) return std::string(n_experts(), FitHeader::kLow);
  std::string widths(n_experts(), FitHeader::kHigh);
  for (uint64_t i = 0; i < moved; ++i) widths[order_[i]] = FitHeader::kLow;
  return widths;
}

Result<Estimate> FitSearch::LossWith(uint64_t moved, std::span<const uint32_t> windows) {
  const std::string widths = WidthsWith(moved);
  TRY(FitBench* const bench, BenchOf(high_, low_));
  std::vector<bool> is_low;
  for (const char width : widths) is_low.push_back(width == FitHeader::kLow);
  TRY(const auto blocks, bench->Measure(windows, is_low, *reference_));
  return LossOf(blocks);
}

// Finds the largest number of experts that can go lower; one more has been measured to lose too
// much.
Status FitSearch::SearchMoved() {
  uint64_t meets = 0;
  uint64_t fails = n_experts();
  const auto high = std::ranges::find(report_.uniform, high_.bytes,
                                      [](const FitReport::Uniform& u) { return u.width.bytes; });
  report_.loss = *high->loss;
  Estimate nearest = *report_.uniform.front().loss;
  while (fails - meets > 1) {
    const uint64_t moved = meets + (fails - meets) / 2;
    TRY(const Estimate loss, LossWith(moved, text_.held_out));
    Note(Format("{} of {} experts at {}: {}", moved, n_experts(), WidthText(low_.width),
                request_.tolerance.Text(loss.value)));
    const bool is_met = loss.value <= request_.tolerance.most;
    (is_met ? meets : fails) = moved;
    (is_met ? report_.loss : nearest) = loss;
  }
  report_.moved = meets;
  if (meets > 0 || high_.width) return {};
  return Fail(Errc::kInvalidRequest,
              "{} is not met with a single expert at {}; the nearest that can be is {}",
              request_.tolerance.Text(request_.tolerance.most), WidthText(low_.width),
              request_.tolerance.Text(nearest.value));
}

// Checks the result on windows that no choice used: the search took the k with the best figure on
// the held-out windows, so that figure is a little too good.
Status FitSearch::Check() {
  if (text_.check.empty()) return {};
  TRY(report_.checked, LossWith(report_.moved, text_.check));
  return {};
}

Status FitSearch::Write() {
  CloseBench();  // writing needs no engine
  report_.high = high_.width;
  report_.low = low_.width;
  report_.widths = WidthsWith(report_.moved);
  const auto n = static_cast<uint64_t>(n_experts());
  report_.expert_bytes = (high_.bytes / n) * (n - report_.moved) + (low_.bytes / n) * report_.moved;
  const auto progress = [&](uint64_t done, uint64_t all) {
    if (request_.progress) request_.progress("writing", done, all);
  };
  TRY(report_.file_bytes, WriteFitted({.model = request_.model,
                                       .high = high_.width,
                                       .low = low_.width,
                                       .widths = report_.widths,
                                       .imatrix = request_.imatrix,
                                       .path = request_.path,
                                       .threads = ResolveThreads(request_.engine.threads),
                                       .overwrite = request_.overwrite,
                                       .weights_folder = request_.engine.weights_folder,
                                       .progress = progress}));
  return {};
}

Result<FitReport> FitSearch::Run() {
  TRY_STATUS(Prepare());
  TRY_STATUS(OpenReference());
  TRY_STATUS(MeasureUniform());
  const auto& lowest = report_.uniform.back().loss;
  if (!lowest || lowest->value > request_.tolerance.most) {
    TRY_STATUS(Rank());
    TRY_STATUS(SearchMoved());
  }
  TRY_STATUS(Check());
  TRY_STATUS(Write());
  scratch_->Remove();
  return std::move(report_);
}

}  // namespace

Result<FitReport> FitWidths(const FitRequest& request) { return FitSearch(request).Run(); }

}  // namespace moestro
