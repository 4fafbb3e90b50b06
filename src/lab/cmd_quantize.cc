// SPDX-License-Identifier: MIT
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>

#include "base/cache_files.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "base/work_limit.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "engine/engine_options.h"
#include "lab/commands.h"
#include "lab/record_report.h"
#include "offline/quantize.h"

namespace moestro {
namespace {

struct QuantizeFlags {
  QuantizeOptions options;
  uint32_t threads = 0;
};

std::string LowText(const QuantizeOptions& options, const QuantizeReport& report, double seconds) {
  std::string text =
      Format("{}: {} for {} of the model's own, {} layers of {} experts, {}, {:.1f} s\n",
             options.path.text(), FormatBytes(report.bytes), FormatBytes(report.source_bytes),
             report.layers, report.experts, options.types.text(), seconds);
  if (report.aligned_slices < report.slices) {
    text += Format("{} of {} matrices begin at a multiple of 4 KiB; others are read with more\n",
                   report.aligned_slices, report.slices);
  }
  if (!report.unvisited.empty()) text += UnvisitedText(report.unvisited, report.experts);
  return text;
}

Status Run(QuantizeFlags& flags) {
  QuantizeOptions& options = flags.options;
  options.threads = ResolveThreads(flags.threads);
  options.weights_folder = CacheFolder();
  ProgressBar bar(ProgressBar::Stderr());
  options.progress = [&bar](uint64_t done, uint64_t all) { bar.Update("quantising", done, all); };
  const double start = SteadySeconds();
  TRY(const QuantizeReport report, WriteLowCopies(options));
  bar.Clear();
  return Output(STDOUT_FILENO).Write(LowText(options, report, SteadySeconds() - start));
}

}  // namespace

void AddQuantize(CommandLine& line) {
  const auto flags = std::make_shared<QuantizeFlags>();
  QuantizeOptions& options = flags->options;
  Flags command =
      line.AddCommand(CommandNamed("quantize"), [flags] { return ExitCode(Run(*flags)); });
  command.Footer(
      "Writes the routed experts alone, to be used beside the model. docs/low-format.md describes "
      "the file.\n"
      "Examples: moestro quantize model.gguf --experts q2_k -o model.low.gguf\n"
      "          moestro quantize model.gguf --experts iq2_xxs --imatrix text.imatrix -o low.gguf\n"
      "          moestro quantize model.gguf --experts gate=q2_k,up=q2_k,down=q3_k -o low.gguf");
  command.Add("MODEL", options.model, "GGUF file").Required();
  command
      .AddParsed("--experts", "TYPE",
                 "type of all three matrices, or of each: gate=TYPE,up=TYPE,down=TYPE",
                 [flags](const std::string& text) -> Status {
                   TRY(flags->options.types, ParseLowTypes(text));
                   return {};
                 })
      .Required();
  command
      .Add("--imatrix", options.imatrix,
           "importances of the weights' columns, from 'moestro imatrix' or llama-imatrix")
      .Type("FILE");
  command.AddOutput("-o,--output", options.path, "file to write").Required();
  command.Add("-t,--threads", flags->threads, "threads (default: physical cores)")
      .Type("N")
      .Between(1U, 512U);
  command.AddSwitch("--force", options.overwrite, "replace an existing file");
}

}  // namespace moestro
