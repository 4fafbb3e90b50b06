// SPDX-License-Identifier: MIT
// An engine with one sequence, for tests that need no more.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "engine/append.h"
#include "native/native_engine.h"

namespace moestro {

class OneSequence {
 public:
  static Result<std::unique_ptr<OneSequence>> Open(const std::string& path,
                                                   const EngineOptions& options) {
    TRY(std::unique_ptr<NativeEngine> engine, NativeEngine::Open(path, options));
    return std::unique_ptr<OneSequence>(new OneSequence(std::move(engine)));
  }

  NativeEngine& engine() { return *engine_; }
  Sequence& sequence() { return sequence_; }
  const ModelSpec& spec() const { return engine_->spec(); }
  const MemoryPlan& memory() const { return engine_->memory(); }
  const RunStats& stats() const { return engine_->stats(); }

  Result<std::span<const float>> Append(std::span<const Token> tokens) {
    return moestro::Append(*engine_, sequence_, tokens);
  }
  Result<std::vector<float>> AppendAll(std::span<const Token> tokens) {
    return moestro::AppendAll(*engine_, sequence_, tokens);
  }
  uint32_t position() const { return sequence_.position(); }
  void Rewind(uint32_t position) { sequence_.CutBack(position); }
  void Reset() { sequence_.CutBack(0); }
  void SetRouteObserver(RouteObserver observer, uint32_t look_ahead = 0) {
    engine_->SetRouteObserver(std::move(observer), look_ahead);
  }
  void RequestStop() { engine_->RequestStop(); }

 private:
  explicit OneSequence(std::unique_ptr<NativeEngine> engine)
      : engine_(std::move(engine)), sequence_(engine_->NewSequence()) {}

  std::unique_ptr<NativeEngine> engine_;
  Sequence sequence_;
};

}  // namespace moestro
