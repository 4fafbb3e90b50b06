// SPDX-License-Identifier: MIT
#include "serve/embed_work.h"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace moestro {

void EmbedWork::Add(std::shared_ptr<EmbedTask> task) {
  under_way_.push_back({.task = std::move(task)});
  UnderWay& added = under_way_.back();
  added.done.n = embedder_.n_embd();
  added.done.values.reserve(added.task->texts().size() * added.done.n);
  for (const std::vector<Token>& text : added.task->texts()) {
    added.done.prompt_tokens += text.size();
  }
}

// The next texts of all requests, one of each in turn. A chunk has no more texts than rows.
EmbedWork::Turn EmbedWork::NextTurn() const {
  Turn turn;
  for (size_t round = 0, before = SIZE_MAX; before != turn.texts.size(); ++round) {
    before = turn.texts.size();
    for (size_t request = 0; request < under_way_.size(); ++request) {
      const std::vector<std::vector<Token>>& texts = under_way_[request].task->texts();
      const size_t next = under_way_[request].next() + round;
      if (next >= texts.size() || turn.texts.size() == chunk_) continue;
      turn.texts.emplace_back(texts[next]);
      turn.owners.push_back(request);
    }
  }
  return turn;
}

void EmbedWork::ComputeSome() {
  DropCancelled();
  if (under_way_.empty()) return;
  const Turn turn = NextTurn();
  size_t given = 0;
  const Result<size_t> computed =
      embedder_.Embed(turn.texts, [&](size_t text, std::span<const float> values) {
        std::vector<float>& to = under_way_[turn.owners[text]].done.values;
        to.insert(to.end(), values.begin(), values.end());
        ++given;
      });
  // A request to stop ends all later, or none of them.
  if (!computed && computed.error().code != Errc::kInterrupted) {
    Fail(turn.owners[given], ToApiError(computed.error()));
  }
  EndComplete();
}

void EmbedWork::Fail(size_t request, const ApiError& error) {
  under_way_[request].task->Tell(std::unexpected(error));
  ++counts_.failed;
  under_way_.erase(under_way_.begin() + static_cast<ptrdiff_t>(request));
}

void EmbedWork::DropCancelled() {
  counts_.cancelled += std::erase_if(
      under_way_, [](const UnderWay& request) { return request.task->is_cancelled(); });
}

void EmbedWork::EndComplete() {
  for (UnderWay& request : under_way_) {
    if (!request.is_complete()) continue;
    std::exchange(request.task, nullptr)->Tell(std::move(request.done));
    ++counts_.finished;
  }
  std::erase_if(under_way_, [](const UnderWay& request) { return request.task == nullptr; });
}

void EmbedWork::FailAll(const ApiError& error) {
  for (const UnderWay& request : under_way_) request.task->Tell(std::unexpected(error));
  counts_.failed += under_way_.size();
  under_way_.clear();
}

}  // namespace moestro
