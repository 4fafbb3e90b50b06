// SPDX-License-Identifier: MIT
#include "cli/sampling_flags.h"

#include <string>
#include <vector>

#include "base/number.h"
#include "text/text_file.h"

namespace moestro {
namespace {

// "15043+1.5", "15043-1": token and bias.
Status AddLogitBias(const std::string& text, SamplingOptions& options) {
  const std::string_view all = text;
  const size_t sign = all.find_first_of("+-", 1);
  if (sign != std::string_view::npos) {
    const std::optional<Token> token = ParseNumber<Token>(all.substr(0, sign));
    const auto bias = ParseNumber<float>(all.substr(all[sign] == '+' ? sign + 1 : sign));
    if (token && bias) {
      options.logit_bias.emplace_back(*token, *bias);
      return {};
    }
  }
  return Fail(Errc::kUsage, "'{}' is not a logit bias; write for example 15043+1 or 15043-1.5",
              text);
}

}  // namespace

void AddSamplingFlags(Flags flags, SamplingOptions& options) {
  SamplingOptions& o = options;
  flags.Group("Sampling (names and defaults of llama.cpp)");
  const auto add = [&flags](const std::string& names, auto& value, const std::string& help) {
    flags.Add(names, value, help).ShowDefault();
  };
  add("--temp", o.temp, "temperature; 0 takes the likeliest token");
  add("--top-k", o.top_k, "keep the k likeliest tokens; 0 is off");
  add("--top-p", o.top_p, "keep the likeliest tokens up to this probability; 1 is off");
  add("--min-p", o.min_p, "drop tokens below this share of the best probability; 0 is off");
  add("--typical,--typical-p", o.typical, "locally typical sampling; 1 is off");
  add("--top-nsigma", o.top_n_sigma, "keep tokens within n sigma of the best logit; -1 is off");
  add("--xtc-probability", o.xtc_probability, "chance to exclude top choices; 0 is off");
  add("--xtc-threshold", o.xtc_threshold, "what counts as a top choice");
  add("--dynatemp-range", o.dynatemp_range, "dynamic temperature: temp +- this; 0 is off");
  add("--dynatemp-exp", o.dynatemp_exp, "exponent of the dynamic temperature");
  add("--repeat-last-n", o.repeat_last_n, "tokens looked at for repetition; 0 is off, -1 context");
  add("--repeat-penalty", o.repeat_penalty, "divides repeated tokens' logits; 1 is off");
  add("--presence-penalty", o.presence_penalty, "subtracted from tokens seen before; 0 is off");
  add("--frequency-penalty", o.frequency_penalty, "the same for each time seen; 0 is off");
  add("--dry-multiplier", o.dry_multiplier, "strength of DRY repetition control; 0 is off");
  add("--dry-base", o.dry_base, "growth of DRY's penalty with the length of a repetition");
  add("--dry-allowed-length", o.dry_allowed_length, "longest repetition DRY leaves alone");
  add("--dry-penalty-last-n", o.dry_penalty_last_n, "tokens DRY looks at; 0 is off, -1 context");
  add("--mirostat", o.mirostat, "0 off, 1 Mirostat, 2 Mirostat 2.0");
  add("--mirostat-ent", o.mirostat_ent, "Mirostat's target entropy, tau");
  add("--mirostat-lr", o.mirostat_lr, "Mirostat's learning rate, eta");
  flags.AddSwitch("--ignore-eos", o.ignore_eos, "never end the text by an end token");
  flags.AddParsedEach("--logit-bias", "TOKEN(+/-)BIAS",
                      "adds to the logit of one token (repeatable)",
                      [&o](const std::string& text) { return AddLogitBias(text, o); });
  const Flag grammar = flags.Add("--grammar", o.grammar, "GBNF grammar the text must follow");
  flags
      .AddParsed("--grammar-file", "FILE", "the grammar from a file",
                 [&o](const std::string& path) -> Status {
                   TRY(o.grammar, ReadSmallText(path));
                   return {};
                 })
      .Excludes(grammar);
}

}  // namespace moestro
