// SPDX-License-Identifier: MIT
// The first device is lost in the middle of a run, and with it keys and values: the engine is put
// together again for the CPU alone, and the sequences' tokens are computed again.
#include <chrono>
#include <memory>
#include <utility>

#include "base/log.h"
#include "native/native_impl.h"

namespace moestro {

Status NativeEngine::LeaveDevices(const Error& why) {
  const auto start = std::chrono::steady_clock::now();
  LogWarning("{} is lost ({}); starting again on the CPU", impl_->gpus.front()->device.info().name,
             why.message);
  Watchers watchers = impl_->forward->watchers();
  EngineOptions again = impl_->options;
  again.device = {.name = "cpu"};
  lasting_->sequences->LoseStates();
  impl_.reset();  // before its successor takes as much
  impl_ = std::make_unique<Impl>(*lasting_);
  const Status started = impl_->Start(again);
  if (!started) {
    lasting_->closed = Error{
        .code = Errc::kDevice,
        .message = "the device is lost, and the CPU cannot go on: " + started.error().message};
    return std::unexpected(*lasting_->closed);
  }
  impl_->forward->watchers() = std::move(watchers);
  if (lasting_->request_observer) impl_->residency->SetObserver(lasting_->request_observer);
  // Nothing comes between layers here: the others' keys and values are missing, too.
  const Interlude* const interlude = std::exchange(lasting_->interlude, nullptr);
  TRY(const size_t tokens, impl_->ComputeSequencesAgain());
  lasting_->interlude = interlude;
  LogWarning("the CPU goes on; {} tokens of {} sequences were computed again, in {:.1f} s in all",
             tokens, lasting_->sequences->ids().size(), SecondsSince(start));
  return {};
}

Result<size_t> NativeEngine::Impl::ComputeSequencesAgain() {
  // A stop is for the step that is computed next: without all of this there is none.
  const StopSignal::Hold hold(stop);
  BeginSequence();
  size_t tokens = 0;
  for (const SequenceId id : sequences->ids()) {
    Batch batch;
    for (const Token token : sequences->Find(id)->tokens) {
      batch.rows.push_back({.sequence = id,
                            .position = static_cast<uint32_t>(batch.size()),
                            .token = token,
                            .kind = RowKind::kPrompt});
    }
    tokens += batch.size();
    if (batch.rows.empty()) continue;
    TRY_STATUS(sequences->Append(id, {}));  // a place for its state
    PhaseStats not_counted;
    TRY_STATUS(Counted(not_counted, [&] { return Compute(batch, {}); }));
    sequences->Commit(id);
  }
  return tokens;
}

}  // namespace moestro
