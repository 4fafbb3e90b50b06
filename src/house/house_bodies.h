// SPDX-License-Identifier: MIT
// Answers about the models of a house: lists, one model, metrics. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "house/house.h"

namespace moestro {

// OpenAI's list, and one entry of it. Beside the usual members an entry has "loaded", "status",
// "needs" and, where there are any, "ram" and "error".
std::string HouseModelBody(const ModelReport& report);
std::string HouseModelsBody(std::span<const ModelReport> reports);
// Ollama's lists: of all models, and of those that are loaded. unix_seconds: now.
std::string HouseTagsBody(std::span<const ModelReport> reports);
std::string HouseRunningBody(std::span<const ModelReport> reports, int64_t unix_seconds);
// The answer to a request of Ollama's that only ends a model.
std::string HouseUnloadedBody(const std::string& name, bool is_chat, int64_t unix_seconds);

struct HouseFigures {
  uint64_t budget = 0;  // bytes for processes of models
  uint64_t held = 0;
  HouseCounts counts = {};
};
// Prometheus' text format.
std::string HouseMetrics(std::span<const ModelReport> reports, const HouseFigures& figures);

}  // namespace moestro
