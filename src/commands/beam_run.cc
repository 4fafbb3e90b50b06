// SPDX-License-Identifier: MIT
#include "commands/beam_run.h"

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "load/open_engine.h"
#include "text/beam_search.h"
#include "text/running_text.h"
#include "text/session.h"

namespace moestro {
namespace {

constexpr uint32_t kMostBeams = 16;

// Most tokens of a beam: the last one is not evaluated.
Result<uint32_t> MostTokens(const BeamRequest& request, uint32_t n_ctx) {
  const size_t n_prompt = request.prompt.tokens.size();
  if (n_prompt == 0) return Fail(Errc::kInvalidRequest, "the prompt is empty; give one with -p");
  if (n_prompt > n_ctx) {
    return Fail(Errc::kInvalidRequest,
                "a prompt of {} tokens does not fit a context of {}; shorten it or raise --ctx",
                n_prompt, n_ctx);
  }
  const auto room = static_cast<uint32_t>(n_ctx - n_prompt + 1);
  if (request.n_predict < 0) return room;
  return static_cast<uint32_t>(std::min<int64_t>(request.n_predict, room));
}

void MakeRoom(uint32_t beams, size_t n_prompt, uint32_t most, Session& session) {
  const auto common = static_cast<uint32_t>(n_prompt);
  session.MakeRoom(beams, common, common + most - 1);
}

// The error of a memory plan, with the number of beams that would fit; 0: not even one.
Status TooMany(const Error& error, const BeamRequest& request, uint32_t most) {
  EngineOptions options = request.engine;
  options.common_positions = static_cast<uint32_t>(request.prompt.tokens.size());
  options.ctx = options.common_positions + most - 1;
  for (uint32_t beams = *request.flags.beams - 1; beams > 0; --beams) {
    options.sequences = beams;
    if (!PlanEngine(request.model, options)) continue;
    return Fail(error.code, "{}; {} {} of {} tokens would fit", error.message, beams,
                beams == 1 ? "beam" : "beams", most);
  }
  return Fail(error.code, "{}; fewer beams do not fit either, fewer tokens (-n) might",
              error.message);
}

std::string TextOf(std::span<const Token> tokens, const Vocab& vocab) {
  Utf8Stream utf8;
  std::string text;
  for (const Token token : tokens) text += utf8.Push(vocab.Piece(token));
  return text + utf8.Flush();
}

std::string TextOf(const Beam& beam, const Vocab& vocab) {
  return TextOf(std::span(beam.tokens).first(beam.tokens.size() - (beam.is_ended ? 1 : 0)), vocab);
}

std::string AsJson(const BeamRequest& request, std::span<const Beam> best, const Vocab& vocab) {
  Json prompt = Json::Array();
  for (const Token token : request.prompt.tokens) prompt.Push(token);
  Json beams = Json::Array();
  for (const Beam& beam : best) {
    Json tokens = Json::Array();
    for (const Token token : beam.tokens) tokens.Push(token);
    Json each = Json::Object();
    each.Set("tokens", std::move(tokens))
        .Set("log_prob", beam.log_prob)
        .Set("score", beam.score)
        .Set("text", TextOf(beam, vocab));
    beams.Push(std::move(each));
  }
  Json json = Json::Object();
  json.Set("prompt_tokens", std::move(prompt)).Set("beams", std::move(beams));
  return json.Dump() + "\n";
}

std::string AsText(std::span<const Beam> best, const Vocab& vocab) {
  std::string text;
  for (const Beam& beam : best) {
    text += Format("score {:.4f}, log-probability {:.4f}, {} tokens{}\n{}\n\n", beam.score,
                   beam.log_prob, beam.tokens.size(), beam.is_ended ? "" : ", not ended",
                   TextOf(beam, vocab));
  }
  return text;
}

}  // namespace

void AddBeamFlags(Flags command, BeamFlags& flags) {
  command.Group("Beam search");
  const Flag beams =
      command
          .Add("--beams", flags.beams,
               "follow the B likeliest continuations side by side and print the best one")
          .Type("B")
          .Between(1U, kMostBeams);
  for (const char* other : {"--top-k",
                            "--top-p",
                            "--min-p",
                            "--typical",
                            "--top-nsigma",
                            "--xtc-probability",
                            "--xtc-threshold",
                            "--dynatemp-range",
                            "--dynatemp-exp",
                            "--repeat-last-n",
                            "--repeat-penalty",
                            "--presence-penalty",
                            "--frequency-penalty",
                            "--dry-multiplier",
                            "--dry-base",
                            "--dry-allowed-length",
                            "--dry-penalty-last-n",
                            "--mirostat",
                            "--mirostat-ent",
                            "--mirostat-lr",
                            "--ignore-eos",
                            "--logit-bias",
                            "--grammar",
                            "--grammar-file",
                            "--reverse-prompt",
                            "--session",
                            "--conversation",
                            "--system-prompt",
                            "--quality"}) {
    beams.Excludes(other);
  }
  command
      .Add("--length-penalty", flags.length_penalty,
           "a in score = log-probability / length^a; above 0 favours longer texts")
      .Type("A")
      .Between(-10.0, 10.0)
      .ShowDefault()
      .Needs(beams);
  command.Add("--n-best", flags.n_best, "print so many of the beams, with their scores")
      .Type("N")
      .Between(1U, kMostBeams)
      .ShowDefault()
      .Needs(beams);
}

Status RunBeams(const BeamRequest& request, TerminalSession& session, Output& output) {
  Session& work = session.session();
  const uint32_t beams = *request.flags.beams;
  if (request.flags.n_best > beams) {
    return Fail(Errc::kUsage, "--n-best {}: there are {} beams", request.flags.n_best, beams);
  }
  TRY(const uint32_t most, MostTokens(request, work.limit().n_ctx));
  if (most == 0) return Fail(Errc::kUsage, "--beams: -n 0 leaves nothing to search");
  MakeRoom(beams, request.prompt.tokens.size(), most, work);
  if (Status started = session.Start(); !started) {
    if (started.error().code != Errc::kInvalidRequest || beams == 1) return started;
    return TooMany(started.error(), request, most);
  }
  const bool streams = !request.json && request.flags.n_best == 1;
  if (streams && request.shows_prompt) TRY_STATUS(output.WriteGenerated(request.prompt.text));
  Status written;
  Utf8Stream utf8;
  BeamCallbacks parts{.is_end = [&](Token token) { return work.vocab().is_end(token); }};
  if (streams) {
    parts.agreed = [&](std::span<const Token> tokens) {
      std::string text;
      for (const Token token : tokens) text += utf8.Push(work.vocab().Piece(token));
      if (written) written = output.WriteGenerated(text);
    };
  }
  work.engine().SetPlanObserver(request.plans);
  EngineBeams rows(work.engine());
  Result<std::vector<Beam>> found = session.Interruptible([&] {
    return SearchBeams(
        rows, parts, request.prompt.tokens,
        {.beams = beams, .length_penalty = request.flags.length_penalty, .max_tokens = most});
  });
  work.engine().SetPlanObserver({});
  TRY_STATUS(std::move(written));
  if (streams) TRY_STATUS(output.WriteGenerated(utf8.Flush() + "\n"));
  if (!found) return std::unexpected(std::move(found).error());
  if (streams) return {};
  const auto best = std::span(*found).first(std::min<size_t>(request.flags.n_best, found->size()));
  return output.Write(request.json ? AsJson(request, best, work.vocab())
                                   : AsText(best, work.vocab()));
}

}  // namespace moestro
