// SPDX-License-Identifier: MIT

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "cli/common_flags.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "lab/commands.h"
#include "offline/fit/fit_search.h"
#include "offline/weight_types.h"
#include "plot/chart.h"

namespace moestro {

// The report of `moestro fit` about its search: text, JSON, and the importances as a drawing.

std::string DescribeFit(const FitRequest& request, const FitReport& report);
Json FitAsJson(const FitRequest& request, const FitReport& report);

// A heat map, layers down and experts across; experts at the lower width have a dot, experts that
// were not measured are empty. An SVG. REQUIRES: the report has importances.
std::string FitDrawing(const std::string& title, const FitReport& report);

namespace {

struct Spread {
  double least = 0.0;
  double most = 0.0;
  double error = 0.0;  // the median one
};

Spread SpreadOf(const FitReport& report) {
  std::vector<double> values;
  std::vector<double> errors;
  for (const auto& importance : report.importance) {
    if (!importance) continue;
    values.push_back(importance->value);
    if (std::isfinite(importance->error)) errors.push_back(importance->error);
  }
  Spread spread;
  if (values.empty()) return spread;
  spread.least = std::ranges::min(values);
  spread.most = std::ranges::max(values);
  std::ranges::sort(errors);
  if (!errors.empty()) spread.error = errors[errors.size() / 2];
  return spread;
}

std::string_view RankingName(FitRanking ranking) {
  switch (ranking) {
    case FitRanking::kNone:
      return "none";
    case FitRanking::kMeasured:
      return "measured";
    case FitRanking::kUse:
      return "popularity x norm";
    case FitRanking::kEstimated:
      return "popularity x norm x error of the weights";
  }
  return "";
}

std::string MeasuredText(const FitRequest& request, const FitReport& report) {
  const uint64_t all = uint64_t{report.layers} * report.experts;
  const uint64_t measured = report.n_measured();
  std::string text;
  if (report.rank_correlation) {
    text += Format(
        "popularity x norm x error of the weights is no estimate of it: rank correlation {:.2f} "
        "with what was measured of a sample (at least {} is asked for)\n",
        *report.rank_correlation, request.least_correlation);
  }
  if (measured < all) {
    text += Format("{} of {} experts were measured; the others go lower last\n", measured, all);
  }
  return text +
         Format("ranked by it; errors make {:.0f} % of the scatter\n", 100.0 * report.noise_share);
}

std::string RankingText(const FitRequest& request, const FitReport& report) {
  if (report.ranking == FitRanking::kNone) return "";
  const Spread spread = SpreadOf(report);
  std::string text = Format(
      "importance: KL {:.3g} to {:.3g} when an expert alone goes lower, median standard error "
      "{:.2g}\n",
      spread.least, spread.most, spread.error);
  switch (report.ranking) {
    case FitRanking::kMeasured:
      text += MeasuredText(request, report);
      break;
    case FitRanking::kUse:
      text += "the differences are within the error, so experts are ranked by popularity x norm\n";
      break;
    default:
      text += Format(
          "ranked by popularity x norm x error of the weights, whose rank correlation with what "
          "was measured of {} experts is {:.2f} (at least {} is asked for)\n",
          report.n_measured(), report.rank_correlation.value_or(0.0), request.least_correlation);
  }
  return text;
}

Json LossJson(const Estimate& loss) {
  Json json = Json::Object();
  json.Set("value", loss.value).Set("error", loss.error);
  return json;
}

}  // namespace

std::string DescribeFit(const FitRequest& request, const FitReport& report) {
  const FitTolerance& tolerance = request.tolerance;
  std::string text;
  for (const FitReport::Uniform& uniform : report.uniform) {
    text += Format("all at {}: {}, {}\n", WidthText(uniform.width.width),
                   FormatBytes(uniform.width.bytes),
                   uniform.loss ? tolerance.Text(uniform.loss->value) : "not measured");
  }
  text += RankingText(request, report);
  const uint64_t all = uint64_t{report.layers} * report.experts;
  text += Format("{} of {} experts at {}, the others at {}: {} instead of {}\n", report.moved, all,
                 WidthText(report.low), WidthText(report.high), FormatBytes(report.expert_bytes),
                 FormatBytes(report.source_bytes));
  text += Format("{} with standard error {} on {} held-out tokens, asked for {}\n",
                 tolerance.Text(report.loss.value), tolerance.Text(report.loss.error),
                 report.held_out_tokens, tolerance.Text(tolerance.most));
  if (report.checked) {
    text += Format("{} with standard error {} on {} tokens that nothing was chosen by\n",
                   tolerance.Text(report.checked->value), tolerance.Text(report.checked->error),
                   report.checked_tokens);
  }
  return text + Format("{}: {}\n", request.path.text(), FormatBytes(report.file_bytes));
}

Json FitAsJson(const FitRequest& request, const FitReport& report) {
  Json uniform = Json::Array();
  for (const FitReport::Uniform& each : report.uniform) {
    Json entry = Json::Object();
    entry.Set("width", WidthText(each.width.width)).Set("expert_bytes", each.width.bytes);
    entry.Set("loss", each.loss ? LossJson(*each.loss) : Json());
    uniform.Push(std::move(entry));
  }
  Json importance = Json::Array();
  for (const auto& each : report.importance) importance.Push(each ? LossJson(*each) : Json());
  Json use = Json::Array();
  for (const double each : report.popularity_norm) use.Push(each);
  const bool is_kl = request.tolerance.kind == FitTolerance::Kind::kKl;
  Json json = Json::Object();
  json.Set("model", request.model)
      .Set("output", request.path.text())
      .Set("figure", is_kl ? "kl" : "perplexity")
      .Set("tolerance", request.tolerance.most)
      .Set("loss", LossJson(report.loss))
      .Set("checked_loss", report.checked ? LossJson(*report.checked) : Json())
      .Set("high", WidthText(report.high))
      .Set("low", WidthText(report.low))
      .Set("moved", report.moved)
      .Set("layers", report.layers)
      .Set("experts_per_layer", report.experts)
      .Set("widths", report.widths)
      .Set("uniform", std::move(uniform))
      .Set("ranking", RankingName(report.ranking))
      .Set("measured", report.n_measured())
      .Set("noise_share", report.noise_share)
      .Set("rank_correlation", report.rank_correlation ? Json(*report.rank_correlation) : Json())
      .Set("importance", std::move(importance))
      .Set("popularity_norm", std::move(use))
      .Set("calibration_tokens", report.calibration_tokens)
      .Set("held_out_tokens", report.held_out_tokens)
      .Set("checked_tokens", report.checked_tokens)
      .Set("evaluated_tokens", report.evaluated)
      .Set("source_expert_bytes", report.source_bytes)
      .Set("expert_bytes", report.expert_bytes)
      .Set("file_bytes", report.file_bytes);
  return json;
}

std::string FitDrawing(const std::string& title, const FitReport& report) {
  const Spread spread = SpreadOf(report);
  const double range = spread.most > spread.least ? spread.most - spread.least : 1.0;
  HeatMap map{.title = title,
              .row_label = "layer",
              .column_label = "experts",
              .rows = report.layers,
              .columns = report.experts,
              .cells = {},
              .notes = {}};
  for (size_t at = 0; at < report.importance.size(); ++at) {
    const auto& importance = report.importance[at];
    const std::string name = Format("layer {} expert {}", at / report.experts, at % report.experts);
    HeatCell& cell = map.cells.emplace_back();
    cell.is_marked = report.widths[at] == '1';
    cell.tip = name + ": not measured";
    if (!importance) continue;
    cell.share = (importance->value - spread.least) / range;
    cell.tip =
        Format("{}: KL {:.3g}, standard error {:.2g}", name, importance->value, importance->error);
  }
  map.notes = {Format("KL {:.3g} (light) to {:.3g} (dark), median standard error {:.2g}; errors "
                      "make {:.0f} % of the scatter",
                      spread.least, spread.most, spread.error, 100.0 * report.noise_share),
               Format("dot: at the lower width; ranked by: {}", RankingName(report.ranking))};
  return DrawHeatMap(map);
}

namespace {

struct FitCommand {
  CommonOptions common;
  FitRequest request;
  uint32_t tokens = 4096;
  uint32_t window = 256;
  OutputPath plot;
};

// "q2_k,q4_k"
Result<std::vector<ggml_type>> ParseWidths(std::string_view text) {
  std::vector<ggml_type> widths;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    TRY(const ggml_type type, FindWeightType(text.substr(begin, end - begin)));
    widths.push_back(type);
    begin = end + 1;
  }
  return widths;
}

Status Run(FitCommand& command) {
  FitRequest& request = command.request;
  TRY_STATUS(CheckAllExperts("fit", command.common.engine));
  request.engine = command.common.engine;
  request.engine.ctx = command.window;
  request.text.tokens = command.tokens;
  if (request.widths.empty()) {
    TRY(request.widths, ParseWidths("q2_k,q4_k,q8_0"));
  }
  ProgressBar bar(ProgressBar::Stderr());
  request.progress = ShowOn(bar);
  request.note = [&](const std::string& text) {
    bar.Clear();
    PrintOnStderr(text + "\n");
  };
  TRY(const FitReport report, FitWidths(request));
  bar.Clear();
  if (!command.plot.empty() && report.ranking == FitRanking::kNone) {
    request.note(Format("{} is not written: all experts have one width, nothing was ranked",
                        command.plot.text()));
  } else if (!command.plot.empty()) {
    const std::string title = std::filesystem::path(request.model).stem().string();
    TRY_STATUS(WriteFile(command.plot, FitDrawing(title, report)));
  }
  return Output(STDOUT_FILENO)
      .Write(command.common.json ? FitAsJson(request, report).Dump() + "\n"
                                 : DescribeFit(request, report));
}

}  // namespace

void AddFit(CommandLine& line) {
  const auto command = std::make_shared<FitCommand>();
  FitRequest& request = command->request;
  Flags fit = line.AddCommand(CommandNamed("fit"), [command] { return ExitCode(Run(*command)); });
  fit.Footer(
      "Measures all experts at each width, then each expert alone, and writes a model in which the "
      "least\nimportant experts have the lower one of two widths. What it measures stays in the "
      "scratch folder until it\nis done: the same command goes on where it was stopped. "
      "docs/fit.md says how it searches.\n"
      "Examples: moestro fit model.gguf --text book.txt --tolerance KL=0.01 -o fitted.gguf\n"
      "          moestro fit model.gguf --text book.txt --tolerance ppl=1% --widths q3_k,q6_k "
      "--plot importance.svg -o fitted.gguf");
  fit.Add("MODEL", request.model, "GGUF file").Required();
  fit.Add("--text", request.text.paths, "text to measure with; several follow each other")
      .Type("FILE")
      .Required();
  fit.AddParsed("--tolerance", "KL=X|ppl=X%",
                "what the widths may cost: nats per token, or higher perplexity",
                [command](const std::string& text) -> Status {
                  TRY(command->request.tolerance, ParseTolerance(text));
                  return {};
                })
      .Required();
  fit.AddParsed("--widths", "TYPE,TYPE,...",
                "types that experts may have beside their own (default: q2_k,q4_k,q8_0)",
                [command](const std::string& text) -> Status {
                  TRY(command->request.widths, ParseWidths(text));
                  return {};
                });
  fit.Add("--imatrix", request.imatrix,
          "importances of the weights' columns, from 'moestro imatrix' or llama-imatrix")
      .Type("FILE");
  fit.AddOutput("-o,--output", request.path, "fitted model to write").Required();
  fit.AddOutput("--plot", command->plot, "draw the importances, too: an SVG");
  fit.Add("-n,--tokens", command->tokens,
          "of the text: half ranks experts, a quarter chooses how many go lower, a quarter checks "
          "it")
      .Positive()
      .ShowDefault();
  fit.Add("--window", command->window, "tokens of a window, in place of --ctx")
      .Between(16U, 65536U)
      .ShowDefault();
  fit.Add("--measure-most", request.measure_most,
          "with more experts than this, importance is estimated, and measured of 64 to see if the "
          "estimate holds")
      .Type("N")
      .ShowDefault();
  fit.Add("--measure-minutes", request.measure_minutes,
          "if it does not hold, experts are measured for so long")
      .Type("MIN")
      .Between(0.0, 1e6)
      .ShowDefault();
  fit.Add("--scratch", request.scratch,
          "folder for copies and results until it is done (default: that of the first text, or the "
          "current one)")
      .Type("DIR");
  fit.AddSwitch("--force", request.overwrite, "replace an existing file");
  AddCommonFlags(fit, command->common);
}

}  // namespace moestro
