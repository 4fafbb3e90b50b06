// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "lab/commands.h"
#include "offline/synth/synth.h"
#include "offline/synth/synth_types.h"

namespace moestro {
namespace {

// Numbers that replace those of the named shape.
struct Overrides {
  std::optional<uint32_t> layers, experts, used, embd, ff, shared_ff, heads, kv_heads, head_dim,
      vocab, context, ngram_rows, predicting;
};

struct SynthFlags {
  std::string shape;
  Overrides own;
  SynthOptions options;
  std::string routing = "narrow";
  bool list = false;
};

std::string ListText() {
  std::string text = Format("{:18} {:9} {:>6} {:>8} {:>5} {:>6} {:>6} {:>7}\n", "shape", "arch",
                            "layers", "experts", "used", "width", "expert", "vocab");
  for (const SynthShape& s : KnownShapes()) {
    text += Format("{:18} {:9} {:6} {:8} {:5} {:6} {:6} {:7}\n", s.name, s.arch, s.layers,
                   s.experts, s.used, s.embd, s.ff, s.vocab);
  }
  text += "\ntypes:";
  for (const std::string& name : SchemeNames()) text += " " + name;
  return text + "\n";
}

Result<SynthShape> ShapeOf(const SynthFlags& flags) {
  if (flags.shape.empty()) {
    return Fail(Errc::kUsage, "--shape is missing; 'moestro synth --list' shows the known ones");
  }
  TRY(SynthShape shape, FindShape(flags.shape));
  const Overrides& own = flags.own;
  if (own.layers) shape = WithLayers(shape, *own.layers);
  shape.experts = own.experts.value_or(shape.experts);
  shape.used = own.used.value_or(shape.used);
  shape.embd = own.embd.value_or(shape.embd);
  shape.ff = own.ff.value_or(shape.ff);
  shape.shared_ff = own.shared_ff.value_or(shape.shared_ff);
  shape.heads = own.heads.value_or(shape.heads);
  shape.kv_heads = own.kv_heads.value_or(shape.kv_heads);
  shape.head_dim = own.head_dim.value_or(shape.head_dim);
  shape.vocab = own.vocab.value_or(shape.vocab);
  shape.context = own.context.value_or(shape.context);
  shape.predicting = own.predicting.value_or(shape.predicting);
  if (own.ngram_rows) shape.ngram_rows = *own.ngram_rows;
  return shape;
}

std::string DoneText(const SynthReport& report, double seconds) {
  std::string files = report.paths.front();
  if (report.paths.size() > 1) files += Format(" and {} more", report.paths.size() - 1);
  return Format(
      "{}: {} ({} of it routed experts), {:.2f} billion weights, vocabulary {}, {:.1f} s\n"
      "The weights are synthetic: sizes, reads and arithmetic are real, answers mean nothing, and "
      "routing is that of random weights.\n",
      files, FormatBytes(report.bytes), FormatBytes(report.expert_bytes),
      static_cast<double>(report.weights) / 1e9, report.vocab, seconds);
}

Status Run(SynthFlags& flags) {
  Output output(STDOUT_FILENO);
  if (flags.list) return output.Write(ListText());
  TRY(flags.options.shape, ShapeOf(flags));
  flags.options.is_damped = flags.routing == "even";
  if (flags.options.path.empty()) return Fail(Errc::kUsage, "-o FILE is missing");
  ProgressBar bar(ProgressBar::Stderr());
  flags.options.progress = [&bar](uint64_t done, uint64_t all) {
    bar.Update("writing", done, all);
  };
  const auto start = std::chrono::steady_clock::now();
  TRY(const SynthReport report, WriteSynthetic(flags.options));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  bar.Clear();
  return output.Write(DoneText(report, taken.count()));
}

void AddShapeFlags(Flags command, Overrides& own) {
  const auto add = [&](const char* name, std::optional<uint32_t>& value, const char* help) {
    command.Add(name, value, help).Type("N").Group("Own numbers instead of the shape's");
  };
  add("--layers", own.layers, "layers");
  add("--experts", own.experts, "experts per layer");
  add("--used", own.used, "experts per token");
  add("--embd", own.embd, "width of the hidden state");
  add("--ff", own.ff, "width of one expert");
  add("--shared-ff", own.shared_ff, "width of the shared expert (qwen2moe)");
  add("--heads", own.heads, "attention heads");
  add("--kv-heads", own.kv_heads, "key and value heads");
  add("--head-dim", own.head_dim, "width of a head");
  add("--vocab-size", own.vocab, "tokens, when no vocabulary is copied");
  add("--context", own.context, "trained context");
  add("--predicting", own.predicting, "layers that predict further tokens, 0 or 1");
  add("--ngram-rows", own.ngram_rows, "rows of each head of a table of n-grams (qwen4exp)");
}

}  // namespace

void AddSynth(CommandLine& line) {
  const auto flags = std::make_shared<SynthFlags>();
  SynthOptions& options = flags->options;
  Flags command = line.AddCommand(CommandNamed("synth"), [flags] { return ExitCode(Run(*flags)); });
  command.Add("--shape", flags->shape, "model whose sizes to take; see --list").Type("NAME");
  command.Add("--type", options.type, "weight type; see --list").Type("TYPE").ShowDefault();
  command.AddOutput("-o,--output", options.path, "file to write");
  command.Add("--vocab", options.vocab_path, "GGUF whose vocabulary to copy").Type("FILE");
  command.Add("--seed", options.seed, "the same seed gives the same bytes").Type("N").ShowDefault();
  command
      .Add("--skew", options.skew,
           "Zipf exponent of the experts' popularity; 0: all alike, 1: a few favourites")
      .Type("S")
      .ShowDefault();
  command
      .Add("--routing", flags->routing,
           "narrow: full-scale layers, deeper ones keep to fewer experts, so that a cache of a "
           "fifth serves three quarters; even: every expert alike, the hardest case for a cache")
      .OneOf({"narrow", "even"})
      .ShowDefault();
  command.Add("--split", options.shards, "number of files").Type("N").ShowDefault();
  command.AddSwitch("--tied", options.is_tied, "token_embd serves as output matrix too");
  command.AddSwitch(
      "--sparse", options.is_sparse,
      "experts and tables are holes: a file of any size for 'inspect', 'trace' and 'sim', whose "
      "speed means nothing");
  command.AddSwitch("--force", options.overwrite, "replace an existing file");
  command.AddSwitch("--list", flags->list, "show shapes and types");
  AddShapeFlags(command, flags->own);
}

}  // namespace moestro
