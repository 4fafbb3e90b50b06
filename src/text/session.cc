// SPDX-License-Identifier: MIT
#include "text/session.h"

#include <algorithm>
#include <utility>

#include "base/input_file.h"
#include "base/number.h"
#include "base/terminal.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "text/drafts.h"
#include "text/text_loop.h"

namespace moestro {
namespace {

// Emits a text as it comes, and keeps it.
class EmittedText final : public TextReader {
 public:
  explicit EmittedText(const std::function<bool(std::string_view)>& emit) : emit_(emit) {}
  bool Tell(TextEvent event) override {
    const auto* piece = std::get_if<TextPiece>(&event);
    if (piece == nullptr || piece->text.empty()) return true;
    text_ += piece->text;
    return emit_(piece->text);
  }
  std::string& text() { return text_; }

 private:
  const std::function<bool(std::string_view)>& emit_;
  std::string text_;
};

Status CheckPrompt(size_t tokens, uint32_t reached, uint32_t n_ctx) {
  if (tokens == 0) return Fail(Errc::kInvalidRequest, "the prompt is empty; give one with -p");
  if (tokens <= n_ctx) return {};
  return Fail(Errc::kInvalidRequest,
              "a prompt of {} tokens does not fit the {} left of a context of {}; shorten it or "
              "raise --ctx",
              tokens - reached, n_ctx - reached, n_ctx);
}

}  // namespace

Result<std::unique_ptr<Session>> Session::Load(const std::string& path, const EngineOptions& engine,
                                               const SamplingOptions& sampling) {
  // Our own reader goes first: it survives damaged files, which libllama's need not.
  TRY(ModelToLoad model, ModelToLoad::Open(path, engine.engine));
  TRY(Vocab vocab, Vocab::Load(model.gguf()));
  if (!vocab.has_text()) {
    return Fail(Errc::kInvalidRequest,
                "{} has no tokenizer, so it can neither read nor write text; 'moestro bench' and "
                "'moestro logits --tokens' work on it",
                path);
  }
  const uint32_t n_ctx = std::min(engine.ctx, model.n_ctx_train());
  TRY(Sampler sampler, Sampler::Create(sampling, vocab, model.n_vocab(), n_ctx));
  std::unique_ptr<Session> session(new Session(std::move(vocab), std::move(sampler)));
  session->limit_ = {.n_ctx = n_ctx, .n_ctx_train = model.n_ctx_train()};
  session->options_ = engine;
  session->model_ = std::move(model);
  return session;
}

void Session::MakeRoom(uint32_t n, uint32_t common, uint32_t n_ctx) {
  options_.sequences = n;
  options_.common_positions = common;
  options_.ctx = n_ctx;
}

Status Session::DraftWith(const DraftOptions& draft) {
  TRY(draft_, PrepareDraft(draft, *model_, options_));
  if (draft_.is_on()) draft_control_ = MakeDraftControl(draft_);
  return {};
}

Status Session::Start(Progress progress) {
  TRY(engine_, OpenEngine(*std::exchange(model_, std::nullopt), options_, std::move(progress)));
  sequence_.emplace(engine_->NewSequence());
  LogInfo("{}", engine_->facts().description);
  return {};
}

Status Session::Resume(const std::string& path) {
  // Gets the origin that Save() needs now, before a text is written that could not be saved.
  TRY([[maybe_unused]] const KvOrigin origin, engine_->kv_origin());
  if (IsAbsent(path)) return {};
  TRY(SavedSequence saved, engine_->RestoreSequence(path));
  sequence_ = std::move(saved.sequence);
  notes_ = std::move(saved.notes);
  return {};
}

Status Session::Save(const OutputPath& path) {
  const bool has_room = sequence_->position() + pending_.size() <= engine_->n_ctx();
  if (!pending_.empty() && has_room) {
    auto appended = Append(*engine_, *sequence_, pending_);
    // A stop that comes as the text ends was meant for the text.
    if (!appended && appended.error().code == Errc::kInterrupted) {
      appended = Append(*engine_, *sequence_, pending_);
    }
    if (!appended) return std::unexpected(std::move(appended).error());
    pending_.clear();
  }
  return engine_->SaveSequence(*sequence_, notes_, path);
}

// Beside the engine a stretch without a place to cut may take 12 MiB, which the plan's share for
// the process covers.
Result<std::vector<Token>> Session::Tokenize(std::string_view text) const {
  TokenStream stream(vocab_, FromText(text),
                     {.parse_special = true, .longest_piece_bytes = 32 * kKiB});
  return Collect(stream, uint64_t{limit_.n_ctx} + 1);
}

Result<Generated> Session::Continue(std::span<const Token> tokens, const GenerateOptions& options,
                                    const std::function<bool(std::string_view)>& emit,
                                    const std::function<bool()>& is_stopped) {
  // At least one token must be evaluated again: its logits are gone.
  const size_t longest = tokens.empty() ? 0 : tokens.size() - 1;
  const size_t kept = std::min(CommonPrefix(sequence_->tokens(), tokens), longest);
  const uint32_t reached = sequence_->GoBack(static_cast<uint32_t>(kept));
  prompts_.all += tokens.size();
  prompts_.cached += reached;
  prompts_.recomputed += kept - reached;
  pending_.clear();
  TRY_STATUS(CheckPrompt(tokens.size(), reached, engine_->n_ctx()));
  sampler_.RestartGrammar();
  sampler_.Observe(tokens.subspan(kept));  // it has observed the others with earlier texts
  const TextOptions asked{
      .prompt = {tokens.begin(), tokens.end()}, .generate = options, .checkpoints = kept_};
  EmittedText reader(emit);
  const Clock clock = SteadySeconds;
  auto text = std::make_unique<RunningText>(
      reader, asked, std::move(*sequence_),
      [this](std::span<const float> logits, std::span<const Token> not_yet) {
        return sampler_.Pick(logits, not_yet);
      },
      &vocab_, clock);
  if (draft_control_) {
    text->DraftWith(MakeDrafter(draft_.kind, *engine_, text->sequence()), draft_control_, *engine_);
  }
  LoneText lone(*engine_, std::move(text));
  lone.Write(is_stopped);
  RunningText& written = lone.text();
  const std::vector<Token> unevaluated(written.waiting().begin(), written.waiting().end());
  sequence_ = written.TakeSequence();
  TRY(const StopReason reason, *written.ending());
  pending_ = unevaluated;  // the last token is not evaluated unless a call needs its logits
  return Generated{.text = std::move(reader.text()),
                   .tokens = {written.answer().begin(), written.answer().end()},
                   .reason = reason};
}

}  // namespace moestro
