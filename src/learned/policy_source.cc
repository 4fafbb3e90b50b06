// SPDX-License-Identifier: MIT
#include "learned/policy_source.h"

#include <utility>

#include "base/small_file.h"
#include "learned/beside_model.h"
#include "learned/tuning_file.h"

namespace moestro {

Result<PolicySource> PolicySource::Find(std::optional<PolicyChoice> chosen, const std::string& file,
                                        const std::string& model_path) {
  PolicySource source;
  source.chosen_ = std::move(chosen);
  if (source.chosen_) return source;
  source.path_ = file;
  source.remedy_ = "tune again with 'moestro sim --tune', or leave out --policy-file";
  if (source.path_.empty()) {
    source.path_ = TuningBeside(model_path);
    source.remedy_ = "delete it, or name a policy with --policy";
    if (IsAbsent(source.path_)) return source;
  }
  Result<PolicyTuning> tuning = ReadTuning(source.path_);
  if (!tuning) return Fail(tuning.error().code, "{}; {}", tuning.error().message, source.remedy_);
  source.tuning_ = *std::move(tuning);
  return source;
}

Result<PolicyChoice> PolicySource::Choose(const ModelId& model, uint64_t slots) const {
  if (chosen_) return *chosen_;
  if (!tuning_) return PolicyChoice{};
  TRY_STATUS(CheckMadeFor(model, tuning_->model, path_, remedy_));
  return ChoiceFor(*tuning_, slots);
}

}  // namespace moestro
