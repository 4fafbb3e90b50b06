// SPDX-License-Identifier: MIT
// The meaning of a user's options for the hosted engine. Pure but for the file of learned paths.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "decide/ahead/predictor.h"
#include "engine/engine.h"
#include "engine/engine_options.h"
#include "model/gguf_file.h"

namespace moestro {

// kUnsupported: an option needs the native engine. kInvalidRequest: no sequence fits, or more are
// wanted than libllama has.
Status CheckHosted(const EngineOptions& options);

// The context's positions. kInvalidRequest: none.
Result<uint32_t> HostedContext(const GgufFile& file, const EngineOptions& options);

// Chooses the predictor that reads ahead. The predictor of early routers is replaced by none if no
// router can be evaluated early. Errors: those of CheckPredictorName() and, with "paths", of
// ReadPathsFor(). `model`: the path of the model's file.
Result<PredictorChoice> HostedPredictor(const EngineOptions& options, const EngineFacts& facts,
                                        const std::string& model);

}  // namespace moestro
