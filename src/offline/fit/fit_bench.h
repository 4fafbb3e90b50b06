// SPDX-License-Identifier: MIT
// Measures the loss of a model when some of its experts go to a lower width: one engine that holds
// both widths of every expert, as own and as low copies, evaluated again and again over windows of
// a text with other experts chosen. No file is loaded anew between two choices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "native/native_engine.h"
#include "offline/eval/eval_stats.h"
#include "offline/eval/eval_text.h"

namespace moestro {

// The windows of a text: every second window ranks the experts, the others measure the loss. Of
// eight or more, every fourth one only checks the result.
struct FitText {
  EvalText text;
  std::vector<uint32_t> calibration;  // indices of windows
  std::vector<uint32_t> held_out;
  std::vector<uint32_t> check;

  uint64_t tokens_of(std::span<const uint32_t> windows) const;
  uint64_t first_row(uint32_t window) const;  // of the reference
};
// kInvalidRequest for a text of fewer than four windows; errors of ReadEvalText().
Result<FitText> ReadFitText(const ModelFile& model, const TextRequest& request,
                            const EngineOptions& options);

// Loss over a block of neighbouring tokens, against the exact run.
struct BlockLoss {
  double tokens = 0.0;
  double kl = 0.0;   // sums
  double nll = 0.0;  // of the next token, less the exact run's
};

// Uses of the experts while the calibration windows ran with no expert at the lower width.
// [layer][expert]
struct ExpertUse {
  std::vector<uint64_t> tokens;
  // Popularity x norm: the router's weights times the lengths of the down matrix's inputs.
  std::vector<double> popularity_norm;
  std::vector<std::vector<bool>> in_window;  // [calibration window][expert]
};

struct FitBenchOptions {
  std::string model;  // at the higher width
  std::string low;    // file of low copies
  double low_share = 0.5;
  EngineOptions engine;
  Progress progress = {};  // may be empty
  // Called once, after the first window; may be empty.
  std::function<void(double tokens_per_second)> first_window = {};
};

class FitBench {
 public:
  // `text` must outlive the bench. Errors: those of NativeEngine::Open().
  static Result<FitBench> Open(const FitBenchOptions& options, const FitText& text);

  // Writes the log-probabilities of all windows, none of the experts lower, into a file.
  Status WriteReference(const ReferenceInfo& info, const std::string& path);
  // Measures with the experts in `is_low` ([layer][expert]) at the lower width. Blocks are in the
  // order of the windows.
  Result<std::vector<BlockLoss>> Measure(std::span<const uint32_t> windows,
                                         const std::vector<bool>& is_low,
                                         ReferenceReader& reference);
  // Measures with no expert at the lower width, over the calibration windows, and counts the
  // experts' uses.
  Result<std::vector<BlockLoss>> Observe(ReferenceReader& reference, ExpertUse& use);

  size_t n_experts() const { return n_experts_; }  // of all layers
  uint64_t evaluated() const { return evaluated_; }

 private:
  FitBench(std::unique_ptr<NativeEngine> engine, const FitText& text, Progress progress);
  // Evaluates each window as one prompt, which needs an expert once for all of its tokens.
  Status Read(std::span<const uint32_t> windows, const char* what,
              const std::function<void(size_t window)>& begin,
              const std::function<Status(std::span<const float> row, Token next)>& take);

  std::unique_ptr<NativeEngine> engine_;
  const FitText* text_;
  Progress progress_;
  uint32_t per_layer_ = 0;
  size_t n_experts_ = 0;
  uint64_t evaluated_ = 0;
  std::function<void(double)> first_window_;
};

}  // namespace moestro
