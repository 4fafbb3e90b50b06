// SPDX-License-Identifier: MIT
#include "hosted/hosted_options.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "hosted/hosted_plan.h"
#include "learned/beside_model.h"
#include "learned/path_file.h"

namespace moestro {

Status CheckHosted(const EngineOptions& options) {
  const auto needs_native = [](std::string_view what) {
    return Fail(Errc::kUnsupported,
                "{} needs the native engine; this model runs on the hosted one (libllama's forward "
                "pass), which computes every expert as it is, on the CPU",
                what);
  };
  if (!options.low.empty()) return needs_native("--low");
  if (!options.lossy.is_exact(false)) return needs_native("a cheaper miss");
  if (options.little.is_on()) return needs_native("--little");
  if (options.check_every > 0) return needs_native("--kl");
  if (options.device.name != "auto" && options.device.name != "cpu") {
    return needs_native("--device");
  }
  if (options.sequences == 0) {
    return Fail(Errc::kInvalidRequest,
                "room for 0 sequences holds no prompt; ask for at least one");
  }
  if (options.sequences > kMostTexts) {
    return Fail(Errc::kInvalidRequest,
                "the hosted engine runs at most {} texts at a time, not {}; lower --parallel",
                kMostTexts, options.sequences);
  }
  return {};
}

Result<uint32_t> HostedContext(const GgufFile& file, const EngineOptions& options) {
  TRY(const std::optional<std::string> arch, file.FindString("general.architecture"));
  TRY(const std::optional<uint64_t> trained, file.FindUint(arch.value_or("") + ".context_length"));
  const uint64_t n_ctx = std::min<uint64_t>(options.ctx, trained.value_or(options.ctx));
  if (n_ctx > 0) return static_cast<uint32_t>(n_ctx);
  return Fail(Errc::kInvalidRequest, "a context of 0 tokens holds no prompt; set --ctx");
}

Result<PredictorChoice> HostedPredictor(const EngineOptions& options, const EngineFacts& facts,
                                        const std::string& model) {
  TRY_STATUS(CheckPredictorName(options.predictor));
  PredictorChoice choice{.name = options.predictor};
  const bool is_blind = choice.name == "next-router" && facts.max_look_ahead == 0;
  if (options.prefetch == 0 || facts.id.shape.n_layer < 2 || is_blind) choice.name = "none";
  if (choice.name != "paths") return choice;
  TRY(choice.paths,
      ReadPathsFor(facts.id, options.paths.empty() ? PathsBeside(model) : options.paths));
  return choice;
}

}  // namespace moestro
