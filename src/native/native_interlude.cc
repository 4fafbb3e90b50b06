// SPDX-License-Identifier: MIT
// Steps of other sequences between two layers of a prompt's step.

#include "base/check.h"
#include "native/native_impl.h"

namespace moestro {

Status NativeEngine::Step(const Batch& batch, const LogitsSink& sink, const Interlude& interlude) {
  if (lasting_->is_aside) {
    if (batch.size() > lasting_->interlude->most_rows) {
      return Fail(Errc::kInvalidRequest, "{} rows between a prompt's layers, where {} may be",
                  batch.size(), lasting_->interlude->most_rows);
    }
    return StepWhole(batch, sink);
  }
  lasting_->interlude = &interlude;
  Status status = StepWhole(batch, sink);
  lasting_->interlude = nullptr;
  return status;
}

// A prompt's. Where rows stay on a device a step is not interrupted.
Interlude NativeEngine::Impl::InterludeOf(const Batch& batch) {
  const Interlude* wanted = lasting.interlude;
  const bool may_be = wanted != nullptr && wanted->is_due && !lasting.is_aside;
  if (!may_be || graph->is_on_device()) return {};
  return {.is_due = wanted->is_due,
          .run = [this, wanted, &batch] { return StepAside(*wanted, batch.little); },
          .most_rows = wanted->most_rows};
}

// What the others do counts as theirs. A stop is for the prompt, which goes on afterwards.
Status NativeEngine::Impl::StepAside(const Interlude& interlude, const LittleStep& rest) {
  CHECK(counting != nullptr);
  PhaseCount& count = *counting;
  EndCount(count);
  lasting.is_aside = true;
  Status ran;
  {
    const StopSignal::Hold hold(stop);
    ran = interlude.run();
  }
  lasting.is_aside = false;
  count = BeginCount(*count.phase);
  protocol->BeginStep(rest);
  return ran;
}

}  // namespace moestro
