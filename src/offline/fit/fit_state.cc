// SPDX-License-Identifier: MIT
#include "offline/fit/fit_state.h"

#include <span>

#include "base/json.h"
#include "base/output_file.h"
#include "base/small_file.h"

namespace moestro {

Result<FitState> FitState::Open(const std::string& path, const std::string& key) {
  FitState state(path, key);
  constexpr size_t kMostBytes = size_t{64} << 20;
  const std::optional<std::string> text = ReadSmallFile(path, kMostBytes);
  if (!text) return state;
  const auto json = Json::Parse(*text);
  if (!json) return state;
  const auto made_for = json->Find("key");
  const auto measured = json->Find("measured");
  if (!made_for || made_for->text() != key || !measured) return state;
  for (const std::string& name : measured->keys()) {
    const auto pair = measured->Find(name);
    const auto value = pair->At(0);
    const auto error = pair->At(1);
    if (!value || !value->number()) continue;
    Estimate estimate{.value = *value->number()};
    if (error && error->number()) estimate.error = *error->number();
    state.measured_[name] = estimate;
  }
  return state;
}

std::optional<Estimate> FitState::Find(const std::string& name) const {
  const auto found = measured_.find(name);
  return found != measured_.end() ? std::optional(found->second) : std::nullopt;
}

Status FitState::Add(const std::string& name, const Estimate& measured) {
  measured_[name] = measured;
  Json all = Json::Object();
  for (const auto& [each, estimate] : measured_) {
    Json pair = Json::Array();
    pair.Push(estimate.value).Push(estimate.error);  // not known: null
    all.Set(each, std::move(pair));
  }
  Json json = Json::Object();
  json.Set("key", key_).Set("measured", std::move(all));
  const std::string text = json.Dump() + "\n";
  TRY(OutputFile file, OutputFile::Create(OutputPath::OfOwn(path_)));
  TRY_STATUS(file.Write(std::as_bytes(std::span(text))));
  TRY_STATUS(file.Publish());
  file.Keep();
  return {};
}

}  // namespace moestro
