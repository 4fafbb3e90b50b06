// SPDX-License-Identifier: MIT
#include "text/beam_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/result.h"
#include "core/batch.h"
#include "engine/append.h"

namespace moestro {
namespace {

// A continuation of a running beam by one token.
struct Candidate {
  double log_prob = 0.0;  // sum over the whole beam
  uint32_t parent = 0;    // index of the running beam
  Token token = 0;
};

bool IsBetter(const Candidate& a, const Candidate& b) {
  if (a.log_prob != b.log_prob) return a.log_prob > b.log_prob;
  return std::pair(a.parent, a.token) < std::pair(b.parent, b.token);
}

double ScoreOf(double log_prob, size_t length, double penalty) {
  return log_prob / std::pow(static_cast<double>(length), penalty);
}

class BeamSearch {
 public:
  BeamSearch(BeamRows& rows, const BeamCallbacks& parts, const BeamOptions& options)
      : rows_(rows), parts_(parts), options_(options) {}

  Result<std::vector<Beam>> Run(std::span<const Token> prompt) {
    running_.assign(1, {});
    const auto sink = [this](size_t row, std::span<const float> logits) { Add(row, logits); };
    TRY_STATUS(rows_.Begin(prompt, sink));
    while (true) {
      TRY_STATUS(CheckNumbers());
      Choose();
      if (IsDone()) break;
      TellAgreed();
      Status advanced = rows_.Advance(parents_, tokens_, sink);
      if (!advanced && advanced.error().code == Errc::kInterrupted) {
        FinishAll();
        break;
      }
      TRY_STATUS(std::move(advanced));
    }
    return Best();
  }

 private:
  // The 2B best continuations of one running beam: logits [n_vocab] -> candidates_.
  void Add(size_t row, std::span<const float> logits) {
    const float most = *std::ranges::max_element(logits);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
    if (!std::isfinite(sum)) {
      is_damaged_ = true;
      return;
    }
    const double log_sum = most + std::log(sum);
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), Token{0});
    const size_t n = std::min<size_t>(size_t{2} * options_.beams, order_.size());
    const auto by_logit = [&](Token a, Token b) {
      const auto x = logits[static_cast<size_t>(a)];
      const auto y = logits[static_cast<size_t>(b)];
      return x > y || (x == y && a < b);
    };
    std::ranges::partial_sort(order_, order_.begin() + static_cast<std::ptrdiff_t>(n), by_logit);
    for (const Token token : std::span(order_).first(n)) {
      const double log_prob = logits[static_cast<size_t>(token)] - log_sum;
      candidates_.push_back({.log_prob = running_[row].log_prob + log_prob,
                             .parent = static_cast<uint32_t>(row),
                             .token = token});
    }
  }

  Status CheckNumbers() const {
    if (!is_damaged_) return {};
    return Fail(Errc::kInvalidFile, "the model's logits are not numbers; is the file damaged?");
  }

  // candidates_ -> running_ and finished_.
  void Choose() {
    std::ranges::sort(candidates_, IsBetter);
    if (candidates_.size() > size_t{2} * options_.beams) {
      candidates_.resize(size_t{2} * options_.beams);
    }
    parents_.clear();
    tokens_.clear();
    std::vector<Beam> next;
    for (size_t rank = 0; rank < candidates_.size() && next.size() < options_.beams; ++rank) {
      const Candidate& candidate = candidates_[rank];
      const bool is_end = parts_.is_end(candidate.token);
      if (is_end && rank >= options_.beams) continue;
      Beam beam = running_[candidate.parent];
      beam.tokens.push_back(candidate.token);
      beam.log_prob = candidate.log_prob;
      if (is_end) {
        beam.is_ended = true;
        Finish(std::move(beam));
        continue;
      }
      parents_.push_back(candidate.parent);
      tokens_.push_back(candidate.token);
      next.push_back(std::move(beam));
    }
    running_ = std::move(next);
    candidates_.clear();
  }

  void Finish(Beam beam) {
    beam.score = ScoreOf(beam.log_prob, beam.tokens.size(), options_.length_penalty);
    const auto place =
        std::ranges::upper_bound(finished_, beam.score, std::greater(), &Beam::score);
    finished_.insert(place, std::move(beam));
    if (finished_.size() > options_.beams) finished_.pop_back();
  }

  void FinishAll() {
    for (Beam& beam : running_) Finish(std::move(beam));
    running_.clear();
  }

  // True when no running beam goes on, or none can still beat the finished ones. When no more
  // tokens fit, running beams are finished as they are.
  bool IsDone() {
    if (running_.empty()) return true;
    const size_t length = running_.front().tokens.size();
    if (length >= options_.max_tokens) {
      FinishAll();
      return true;
    }
    if (finished_.size() < options_.beams) return false;
    // Log-probabilities only fall; a penalty above 0 favours the longest text.
    const size_t best_length = options_.length_penalty > 0.0 ? options_.max_tokens : length;
    const double attainable =
        ScoreOf(running_.front().log_prob, best_length, options_.length_penalty);
    return finished_.back().score >= attainable;
  }

  void TellAgreed() {
    if (!parts_.agreed) return;
    const std::vector<Token>& first = running_.front().tokens;
    size_t n = first.size();
    for (const std::vector<Beam>* some : {&running_, &finished_}) {
      for (const Beam& beam : *some) {
        const auto ends = std::ranges::mismatch(first, beam.tokens);
        n = std::min(n, static_cast<size_t>(ends.in1 - first.begin()));
      }
    }
    if (n > told_) parts_.agreed(std::span(first).subspan(told_, n - told_));
    told_ = std::max(told_, n);
  }

  std::vector<Beam> Best() {
    if (parts_.agreed && !finished_.empty()) {
      const std::vector<Token>& best = finished_.front().tokens;
      CHECK(told_ <= best.size());
      const size_t n = best.size() - (finished_.front().is_ended ? 1 : 0);
      if (n > told_) parts_.agreed(std::span(best).subspan(told_, n - told_));
    }
    return std::move(finished_);
  }

  BeamRows& rows_;
  const BeamCallbacks& parts_;
  const BeamOptions& options_;
  std::vector<Beam> running_;   // best first, all of one length
  std::vector<Beam> finished_;  // best first, at most B
  std::vector<Candidate> candidates_;
  std::vector<uint32_t> parents_;  // index in the previous running_
  std::vector<Token> tokens_;      // the last ones of running_
  std::vector<Token> order_;       // scratch
  size_t told_ = 0;                // tokens that were agreed
  bool is_damaged_ = false;
};

}  // namespace

Result<std::vector<Beam>> SearchBeams(BeamRows& rows, const BeamCallbacks& parts,
                                      std::span<const Token> prompt, const BeamOptions& options) {
  CHECK(!prompt.empty() && options.beams > 0 && options.max_tokens > 0);
  return BeamSearch(rows, parts, options).Run(prompt);
}

Status EngineBeams::Begin(std::span<const Token> prompt, const Sink& sink) {
  rows_.clear();
  rows_.push_back(engine_.NewSequence());
  TRY(const std::span<const float> logits, Append(engine_, rows_.front(), prompt));
  sink(0, logits);
  return {};
}

Status EngineBeams::Advance(std::span<const uint32_t> parents, std::span<const Token> tokens,
                            const Sink& sink) {
  CHECK(!parents.empty() && parents.size() == tokens.size());
  std::vector<Sequence> next;
  for (const uint32_t parent : parents) next.push_back(rows_.at(parent).Fork());
  rows_ = std::move(next);  // the old sequences give back cells that no new one shares
  Batch batch;
  for (size_t i = 0; i < rows_.size(); ++i) {
    batch.rows.push_back({.sequence = rows_[i].id(),
                          .position = rows_[i].position(),
                          .token = tokens[i],
                          .wants_logits = true});
  }
  Status status = engine_.Step(batch, sink);
  if (!status) rows_.clear();
  return status;
}

}  // namespace moestro
