// SPDX-License-Identifier: MIT
#include "engine/policy_source.h"

#include <filesystem>

#include "engine/tuning_file.h"

namespace moestro {

Result<PolicySource> PolicySource::Find(const EngineOptions& options,
                                        const std::string& model_path) {
  PolicySource source;
  source.chosen_ = options.policy;
  if (source.chosen_) return source;
  source.path_ = options.policy_file;
  source.remedy_ = "tune again with 'moestro sim --tune', or leave out --policy-file";
  if (source.path_.empty()) {
    source.path_ = TuningPathFor(model_path);
    source.remedy_ = "delete it, or name a policy with --policy";
    std::error_code unreadable;  // is no absence: ReadTuning() says what it is
    if (!std::filesystem::exists(source.path_, unreadable) && !unreadable) return source;
  }
  Result<PolicyTuning> tuning = ReadTuning(source.path_);
  if (!tuning) return Fail(tuning.error().code, "{}; {}", tuning.error().message, source.remedy_);
  source.tuning_ = *std::move(tuning);
  return source;
}

Result<PolicyChoice> PolicySource::Choose(const TunedModel& model, uint64_t slots) const {
  if (chosen_) return *chosen_;
  if (!tuning_) return PolicyChoice{};
  Result<PolicyChoice> choice = ChoiceFor(*tuning_, model, slots);
  if (choice) return choice;
  return Fail(choice.error().code, "{}: {}; {}", path_, choice.error().message, remedy_);
}

}  // namespace moestro
