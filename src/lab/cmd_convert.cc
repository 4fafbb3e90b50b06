// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/work_limit.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "engine/engine_options.h"
#include "lab/commands.h"
#include "offline/convert/convert.h"

namespace moestro {
namespace {

struct ConvertFlags {
  ConvertOptions options;
  uint32_t threads = 0;
};

std::string ConvertedText(const ConvertOptions& options, const ConvertReport& report,
                          double seconds) {
  return Format(
      "{}: {} from {}, {} encoder and {} decoder layers, {} of them with {} experts, vocabulary "
      "{}, {}, {:.1f} s\n",
      options.path.text(), FormatBytes(report.bytes), FormatBytes(report.source_bytes),
      report.encoder_layers, report.decoder_layers, report.sparse_layers, report.experts,
      report.vocab, report.is_tied ? "tied" : "untied", seconds);
}

Status Run(ConvertFlags& flags) {
  ConvertOptions& options = flags.options;
  options.threads = ResolveThreads(flags.threads);
  ProgressBar bar(ProgressBar::Stderr());
  options.progress = [&bar](uint64_t done, uint64_t all) { bar.Update("writing", done, all); };
  const double start = SteadySeconds();
  TRY(const ConvertReport report, ConvertFolder(options));
  bar.Clear();
  return Output(STDOUT_FILENO).Write(ConvertedText(options, report, SteadySeconds() - start));
}

}  // namespace

void AddConvert(CommandLine& line) {
  const auto flags = std::make_shared<ConvertFlags>();
  ConvertOptions& options = flags->options;
  Flags command =
      line.AddCommand(CommandNamed("convert"), [flags] { return ExitCode(Run(*flags)); });
  command.Footer(
      "Takes Switch Transformers: config.json, model.safetensors (or shards and their index) and "
      "spiece.model or tokenizer.json. docs/switch-format.md describes the file.\n"
      "Examples: moestro convert switch-base-8 -o switch-base-8.gguf\n"
      "          moestro convert switch-base-8 --type Q4_0 -o switch-base-8.q4_0.gguf");
  command.Add("DIR", options.folder, "folder as Hugging Face has it").Required();
  command.AddParsed("--type", "TYPE", "type of the matrices: Q8_0 (default), Q4_0, F16, BF16, F32",
                    [flags](const std::string& text) -> Status {
                      TRY(flags->options.type, FindConvertType(text));
                      return {};
                    });
  command.AddOutput("-o,--output", options.path, "file to write").Required();
  command.Add("-t,--threads", flags->threads, "threads (default: physical cores)")
      .Type("N")
      .Between(1U, 512U);
  command.AddSwitch("--force", options.overwrite, "replace an existing file");
}

}  // namespace moestro
